"""Protects the errors of the first minutes: changed operators, workers without the package, joins."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.cloudpickle import dumps
from streaming_case import Case

import headrace as hr
from headrace.errors import OperatorChanged, QueryError
from headrace.spark.build.joins.request import spelled
from headrace.spark.tables.shipped import shipped as shipped_source
from headrace.spark.task.apply_calls import user_frames
from headrace.spark.task.task import shipped

LACKING = """
import importlib.abc, pickle, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "headrace":
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Absent())
loaded = pickle.load(open(sys.argv[1], "rb"))
try:
    loaded({} if isinstance(loaded, type) else iter(()))
except RuntimeError as error:
    print(error)
"""


def test_a_changed_operator_is_refused_when_the_query_starts(case: Case) -> None:
    case.feed(("ann", 1, 2.0))
    case.run(case.totals())
    changed = case.totals(total=hr.max("amount"))
    writer = changed.writeStream.format("noop").option("checkpointLocation", str(case.checkpoint))
    with pytest.raises(OperatorChanged, match=r"sum\(amount\).*is now max\(amount\)"):
        hr.start(writer)
    assert case.spark.streams.active == []


def test_a_worker_without_the_package_answers_in_one_sentence(tmp_path: Path) -> None:
    def task(batches: object) -> object:
        return batches

    task.__name__ = "headrace_totals"
    task.plan = None  # type: ignore[attr-defined]
    path = tmp_path / "task"
    path.write_bytes(dumps(shipped(task)))  # type: ignore[arg-type]
    command = [sys.executable, "-c", LACKING, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "headrace_totals" in done.stdout
    assert "lacks Headrace" in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_a_python_without_the_package_cannot_read_state_and_answers_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(dumps(shipped_source(("address", "secret"))))
    command = [sys.executable, "-c", LACKING, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "format headrace" in done.stdout
    assert "lacks Headrace" in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_an_archive_of_the_package_names_what_to_do_instead(tmp_path: Path) -> None:
    """`spark-submit --py-files headrace.zip` puts the archive on the path of driver and workers."""
    package = Path(hr.__file__).parent
    with zipfile.ZipFile(tmp_path / "headrace.zip", "w") as archive:
        for name in ("__init__.py", "errors.py"):
            archive.write(package / name, f"headrace/{name}")
    script = f"import sys; sys.path.insert(0, {str(tmp_path / 'headrace.zip')!r}); import headrace"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: Headrace cannot run from the archive")
    assert "--archives" in last


@pytest.mark.parametrize(
    ("spelling", "meant"),
    [
        ("inner", "inner"),
        ("LEFT", "left"),
        ("left_outer", "left"),
        ("leftouter", "left"),
        ("right_outer", "right"),
        ("outer", "full"),
        ("full_outer", "full"),
        ("fullouter", "full"),
    ],
)
def test_joins_are_spelled_as_in_spark(spelling: str, meant: str) -> None:
    assert spelled(spelling) == meant


@pytest.mark.parametrize("spelling", ["semi", "left_anti", "cross", ""])
def test_other_joins_are_refused_by_name(spelling: str) -> None:
    with pytest.raises(QueryError, match="write one of inner, left, right, full"):
        spelled(spelling)


def test_a_users_function_fails_with_its_own_lines() -> None:
    def divide() -> float:
        return 1 / 0

    try:
        divide()
    except ZeroDivisionError as error:
        shown = user_frames(error)
    assert "in divide" in shown
    assert "return 1 / 0" in shown
