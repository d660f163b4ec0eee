"""Protects the time between two tasks of one Python worker: what it has imported is out of the collector's
sight after the first tasks, and what later tasks leave behind is still collected.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

import headrace.spark.bridge.worker

PROGRAM = f"""
import gc
from {headrace.spark.bridge.worker.__name__} import FREEZING_TASKS, sparing

kept = [gc.get_freeze_count()]
for _ in range(FREEZING_TASKS + 2):
    assert list(sparing(iter([1, 2]))) == [1, 2]
    kept.append(gc.get_freeze_count())
print(*kept)
"""


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


def test_what_is_there_after_the_first_tasks_is_frozen_and_no_more() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, *kept = map(int, done.stdout.split())
    frozen = kept[headrace.spark.bridge.worker.FREEZING_TASKS - 1]
    assert before < 1_000 < kept[0] <= frozen
    assert kept[headrace.spark.bridge.worker.FREEZING_TASKS :] == [frozen] * 2


def test_garbage_of_a_task_is_collected_and_not_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headrace.spark.bridge.worker, "_ended", 0)
    ring = Ring()
    seen = weakref.ref(ring)
    del ring
    try:
        assert list(headrace.spark.bridge.worker.sparing(iter([1]))) == [1]
        assert seen() is None
    finally:
        gc.unfreeze()
