"""Make every kernel ready before the first batch needs it.

Kernels have explicit signatures, so importing their module compiles them or loads them from Numba's cache.
Compiling leaves some 250 MB in the process that did it, as long as that lives; so another process does it
(`python -m headrace.kernels.warm`), and this one loads what that has left in the cache.

Loading leaves some hundred thousand objects that live as long as the process. The garbage collector would
walk over them for tens of milliseconds, in the middle of a batch, so it is told to leave them out. What
imports remember for the next import, such as the names in all of PySpark's archive, is forgotten.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module, invalidate_caches
from pkgutil import iter_modules
from typing import Any

from numba.core.event import Listener, install_listener

KERNELS = "headrace.kernels"

_PR_SET_PDEATHSIG = 1  # Linux's prctl: a signal for when the parent is gone


def warm(package: str = KERNELS) -> list[str]:
    """Import every module of kernels and name them. Call it once, before any thread runs a kernel."""
    if not _is_cached(package):
        # Where this fails, the import below says why.
        subprocess.run([sys.executable, "-m", f"{KERNELS}.warm", package], check=False)
    names = _imported(package)
    invalidate_caches()
    gc.collect()
    gc.freeze()
    return names


class _NotCompiled(Exception):
    """A kernel is not in the cache."""


class _NoCompiler(Listener):  # type: ignore[misc]
    """Numba tells it that it is about to compile, which ends there."""

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
    names = [module.name for module in iter_modules(import_module(package).__path__)]
    others = [name for name in names if name != "warm"]
    for name in others:
        import_module(f"{package}.{name}")
    return others


def _end_with_parent() -> None:
    """Whoever comes after a killed parent compiles again, and Numba's cache wants one writer."""
    with suppress(OSError, AttributeError):  # elsewhere than on Linux it runs to its end
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    _end_with_parent()
    _imported(sys.argv[1])
