"""Protects the host's memory: kernels that are not in Numba's cache are compiled by another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from headrace.host.process.locks import is_dying
from headrace.kernels import warm
from headrace.testing.crash.processes import eventually

KERNEL = """
from numba import int64, njit

@njit([int64(int64)], cache=True)
def twice(number):
    return 2 * number
"""
CALLS_IT = """
from numba import int64, njit
from some_kernels.second import twice

@njit([int64(int64)], cache=True)
def four_times(number):
    return twice(twice(number))
"""
BROKEN = "raise RuntimeError('no such kernel')\n"
NEVER_DONE = """
import os, pathlib, time
name = pathlib.Path(__file__).with_name("pid")
name.with_suffix(".new").write_text(str(os.getpid()))
name.with_suffix(".new").replace(name)
time.sleep(600)
"""
WARMS = "from headrace.kernels.warm import warm; warm('some_kernels')"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of kernels that nobody has compiled, for this process and for those it starts."""
    folder = tmp_path / "some_kernels"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "first.py").write_text(CALLS_IT)
    (folder / "second.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "some_kernels"]:
        del sys.modules[name]


def test_nothing_is_compiled_here(package: Path) -> None:
    assert warm.warm("some_kernels") == ["first", "second"]
    twice = import_module("some_kernels.second").twice
    four_times = import_module("some_kernels.first").four_times
    for kernel in (twice, four_times):
        assert (sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())) == (1, 0)
    assert (twice(21), four_times(21)) == (42, 84)


def test_what_cannot_be_loaded_says_why(package: Path) -> None:
    (package / "third.py").write_text(BROKEN)
    with pytest.raises(RuntimeError, match="no such kernel"):
        warm.warm("some_kernels")


def test_a_killed_process_leaves_no_compiler_behind(package: Path) -> None:
    (package / "third.py").write_text(NEVER_DONE)
    named = package / "pid"
    with subprocess.Popen([sys.executable, "-c", WARMS]) as warming:
        begun = eventually(named.exists, within_s=60)
        warming.kill()
    assert begun
    compiler = int(named.read_text())
    assert compiler != warming.pid
    assert eventually(lambda: is_dying(compiler), within_s=60)
