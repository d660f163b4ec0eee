"""Ordered runs combined to one, where few are to be: without a table, and the result is ordered too.

Memory: all runs at once, a number for each of their rows, and the result.
Threads: any; nothing is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from headrace.kernels.core import order
from headrace.kernels.tables import align
from headrace.kernels.tables import table as kernel
from headrace.row.arrays import Ids
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.tables.rows import Rows

RUNS_MAX = 16  # every key costs a look at each of them

_GAP = np.array([align.PAST])


def aligned(runs: Sequence[Run], layout: RowLayout) -> Run | None:
    """The rows of ordered runs together, one per key, in the order of the runs.

    None where keys share a hash: their rows may lie in any order then, and a table separates them.
    """
    hashes = np.concatenate([part for run in runs for part in (run.order, _GAP)] or [_GAP])
    starts: Ids = np.cumsum([0, *(len(run) + 1 for run in runs)], dtype=np.int64)
    ids = np.empty(len(hashes), np.int64)
    together = _Entered(layout, align.number(hashes, starts, ids) if runs else 0)
    parts = [(ids[start : end - 1], run) for (start, end), run in zip(pairwise(starts), runs, strict=True)]
    for at, run in parts:
        if not together.enter(at, run):
            return None
    for at, run in parts:
        together.combine(at, run)
    return together.view()


class _Entered(Rows):
    """Rows whose number is known before their key is."""

    def __init__(self, layout: RowLayout, count: int) -> None:
        super().__init__(layout, count)
        self._counters[kernel.COUNT] = count
        self._entered = np.zeros(count, np.bool_)

    def enter(self, row_ids: Ids, run: Run) -> bool:
        """Give rows their keys; False where one has another key already."""
        width = self.layout.key_width
        heap_words = self._variable[self._variable < width]
        self._reserve_heap(int(order.held_bytes(run.words, len(run), heap_words)))
        to = (self._rows, self._hashes, self._heap, self._counters, self._entered)
        return bool(align.enter(*to, row_ids, run.order, run.words, run.heap, self._is_variable[:width]))
