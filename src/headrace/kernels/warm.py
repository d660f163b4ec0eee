"""Compiles or loads every kernel before the first batch needs it.

Kernels have explicit signatures, so importing their module compiles them or loads them from Numba's cache.
The compiler leaves some 250 MB in its process. So another process compiles (`python -m
headrace.kernels.warm`), and this one loads the result from the cache.

Loading creates some hundred thousand objects that are never freed. The garbage collector would walk over
them for tens of milliseconds in the middle of a batch, so they are frozen. The import system's caches, such
as all names in PySpark's archive, are dropped.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module, invalidate_caches
from pkgutil import walk_packages
from typing import Any

from numba.core.event import Listener, install_listener

KERNELS = "headrace.kernels"

_PR_SET_PDEATHSIG = 1  # Linux's prctl: a signal for the end of the parent


def warm(package: str = KERNELS) -> list[str]:
    """Imports all kernel modules and returns their names. Call it before any thread runs a kernel."""
    if not _is_cached(package):
        # If this fails, the import below raises the cause.
        subprocess.run([sys.executable, "-m", f"{KERNELS}.warm", package], check=False)
    names = _imported(package)
    invalidate_caches()
    gc.collect()
    gc.freeze()
    return names


class _NotCompiled(Exception):
    """A kernel is not in the cache."""


class _NoCompiler(Listener):  # type: ignore[misc]
    """Numba calls it before it compiles; the exception prevents the compilation."""

    def on_start(self, event: Any) -> None:
        raise _NotCompiled

    def on_end(self, event: Any) -> None:
        pass


def _is_cached(package: str) -> bool:
    """Whether every kernel could be loaded; none is compiled."""
    try:
        with install_listener("numba:compile", _NoCompiler()):
            _imported(package)
    except _NotCompiled:
        return False
    return True


def _imported(package: str) -> list[str]:
    """Imports every module of the package, including its folders, and returns their names."""
    prefix = f"{package}."
    names = [module.name for module in walk_packages(import_module(package).__path__, prefix)]
    others = [name for name in names if name != f"{KERNELS}.warm"]
    for name in others:
        import_module(name)
    return [name.removeprefix(prefix) for name in others]


def _end_with_parent() -> None:
    """Ends this process with its parent, because Numba's cache needs one writer at a time."""
    with suppress(OSError, AttributeError):  # on systems other than Linux the process runs to its end
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    _end_with_parent()
    _imported(sys.argv[1])
