"""Some rows of a run. NumPy would copy them with the GIL held, and a batch would wait for a compaction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.kernels.core.order import take
from headrace.row.arrays import I64, U64
from headrace.row.run import Run


def rows_at(run: Run, ids: I64) -> Run:
    """These rows of a run, over the same heap."""
    words: U64 = np.empty((len(ids), run.words.shape[1]), np.uint64)
    take(run.words, ids, words)
    return Run(run.order.take(ids), words, run.heap)


def rows_where(run: Run, mask: npt.NDArray[np.bool_]) -> Run:
    """The rows of a run that a mask has, over the same heap."""
    return rows_at(run, np.flatnonzero(mask))
