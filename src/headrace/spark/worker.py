"""Spark's Python worker process, which serves one task after another.

After every task PySpark's daemon collects garbage (`gc.collect()`), which walks over all objects of all
imported modules: tens of milliseconds, as much as a small task takes. Modules never become garbage, so they
are put out of the collector's sight once they are there.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TypeVar

FREEZING_TASKS = 8  # the first ones of a process; between them they import what there is to import

_Item = TypeVar("_Item")
_ended = 0


def sparing(items: Iterator[_Item]) -> Iterator[_Item]:
    """The items of a task; after the first tasks of this process the collector forgets what is there."""
    global _ended
    yield from items
    _ended += 1
    if _ended <= FREEZING_TASKS:
        gc.collect()
        gc.freeze()
