"""Make every kernel ready before the first batch needs it.

Kernels have explicit signatures, so importing their module compiles them or loads them from Numba's cache.
That leaves some hundred thousand objects that live as long as the process. The garbage collector would
walk over them for tens of milliseconds, in the middle of a batch, so it is told to leave them out. What
imports remember for the next import, such as the names in all of PySpark's archive, is forgotten.
"""

from __future__ import annotations

import gc
from importlib import import_module, invalidate_caches
from pkgutil import iter_modules

import headrace.kernels


def warm() -> list[str]:
    """Import every module of kernels and name them. Call it once, before any thread runs a kernel."""
    names = [module.name for module in iter_modules(headrace.kernels.__path__) if module.name != "warm"]
    for name in names:
        import_module(f"{headrace.kernels.__name__}.{name}")
    invalidate_caches()
    gc.collect()
    gc.freeze()
    return names
