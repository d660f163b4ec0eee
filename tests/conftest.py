"""Nothing left behind: after the tests no state host runs and no file lies outside the tests' folders.

Temporary files of the tests and of all their processes go to one short directory of this run, so that
what is left in it was left by this run. State hosts are found by a mark that they inherit.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

MARK = "HEADRACE_TESTS"
OURS = ("headrace-*", "hr-*")
STRAYS = ("spark-warehouse", "metastore_db", "derby.log", "artifacts", *OURS)
GONE_WITHIN_S = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bridge", default="auto", help="spark.headrace.bridge of the Spark tests")
    parser.addoption("--queries", type=int, default=2, help="random queries against Spark alone")
    parser.addoption("--pictures", default="", help="folder for pictures of the live view, of its own test")
    parser.addoption("--all", action="store_true", help="also the tests that are marked long")
    parser.addoption(
        "--part", default="1/1", help="one part of the files, such as 2/3: each third from the second on"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = _part(items, config.getoption("--part"))
    if not config.getoption("--all"):
        chosen = [item for item in chosen if not _is_long(item)]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def _part(items: list[pytest.Item], part: str) -> list[pytest.Item]:
    """The tests of one part of the files: parts run side by side, each with a Spark session of its own."""
    first, parts = (int(number) for number in part.split("/"))
    files = set(sorted({item.path for item in items})[first - 1 :: parts])
    return [item for item in items if item.path in files]


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A directory for temporary files, short because sockets lie in it; empty of our files at the end."""
    tmp_path_factory.getbasetemp()  # pytest's own folders stay where they are
    before, inherited = _strays(Path.cwd()), os.environ.get("TMPDIR")
    folder = Path(tempfile.mkdtemp(prefix="hrt-"))
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    os.environ[MARK] = f"{os.getpid()}-{folder.name}"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take whatever python3 is
    _let_hosts_import(Path(__file__).parent / "unit")
    yield
    tempfile.tempdir = None
    os.environ.pop("TMPDIR")
    if inherited is not None:
        os.environ["TMPDIR"] = inherited
    hosts = hosts_left()
    left = sorted(path.name for pattern in OURS for path in folder.glob(pattern))
    shutil.rmtree(folder, ignore_errors=True)
    assert not hosts, f"state hosts left running: {hosts}"
    assert not left, f"files left in the temporary directory: {left}"
    assert _strays(Path.cwd()) <= before, "files were left in the working directory"


def _let_hosts_import(folder: Path) -> None:
    """Hosts inherit Spark's environment, and the first Spark of the process fixes it for all later ones."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


@pytest.fixture(scope="module", autouse=True)
def _no_host_outlives_its_application(_own_temporary_files: None) -> Iterator[None]:
    """After a module that ended its Spark session, the session's hosts must be gone."""
    yield
    if not _spark_runs():
        hosts = hosts_left()
        assert not hosts, f"state hosts left running: {hosts}"


def hosts_left() -> list[str]:
    """State hosts of this test run that are still there when they should long be gone."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while (hosts := _hosts()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return hosts


def _hosts() -> list[str]:
    return [f"pid {process.pid}" for process in psutil.process_iter() if _is_host(process)]


def _is_host(process: psutil.Process) -> bool:
    with suppress(psutil.Error, OSError):
        if process.cmdline()[1:3] != ["-m", "headrace.host"] or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.environ().get(MARK) == os.environ.get(MARK)
    return False


def _spark_runs() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _strays(folder: Path) -> set[str]:
    return {path.name for pattern in STRAYS for path in folder.glob(pattern)}
