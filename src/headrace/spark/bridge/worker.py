"""Spark's Python worker process, which serves one task after another.

PySpark's daemon collects garbage after every task. `gc.collect()` walks over all objects of all imported
modules, which takes tens of milliseconds, as long as a small task. Modules never become garbage, so they
are frozen: the collector skips frozen objects. User code over rows makes many small objects without cycles;
the collector looks at them less often while such code runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

YOUNG_OBJECTS = 100_000  # between two looks of the collector; Python's default is 700
FREEZING_TASKS = 8  # the first tasks of a process import all modules

_Item = TypeVar("_Item")
_ended = 0


def sparing(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yields the items of a task. Freezes all live objects after each of the process's first tasks."""
    global _ended
    yield from items
    _ended += 1
    if _ended <= FREEZING_TASKS:
        gc.collect()
        gc.freeze()


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """The collector waits for more new objects than usual."""
    before = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
