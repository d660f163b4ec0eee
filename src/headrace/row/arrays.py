"""Array types that kernels and stores share, each defined once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]  # words, hashes, order keys
U8 = npt.NDArray[np.uint8]  # a heap of bytes
I64 = npt.NDArray[np.int64]  # times, counts, offsets
Ids = npt.NDArray[np.int64]  # positions of rows
Flags = npt.NDArray[np.bool_]
Stamps = npt.NDArray[np.uint32]  # of each row: the epoch of its last change, and its mark in the cache
