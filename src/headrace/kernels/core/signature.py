"""The array types that kernels are compiled for.

Every kernel has one explicit signature, so that no batch makes the host compile. Inputs are typed
read-only. Numba accepts writable arrays for them too, so views of Arrow buffers and of mapped files pass
without a copy.

Numba's cache watches the file of a kernel, not the helpers that it calls. After a change in `bytes.py` or
`wide.py`, remove the `__pycache__` folder.
"""

from __future__ import annotations

from typing import Any

from numba import types

# Result type of a helper inside kernels: Numba infers it, mypy cannot.
Scalar = Any

I64, U64, FLAG = types.int64, types.uint64, types.boolean

WORDS = types.Array(types.uint64, 2, "C")
HASHES = types.Array(types.uint64, 1, "C")
STAMPS = types.Array(types.uint32, 2, "C")  # of each row: epoch and mark
HEAP = types.Array(types.uint8, 1, "C")
IDS = types.Array(types.int64, 1, "C")
FLAGS = types.Array(types.boolean, 1, "C")
OFFSETS = types.Array(types.int32, 1, "C")

WORDS_IN = types.Array(types.uint64, 2, "C", readonly=True)
HASHES_IN = types.Array(types.uint64, 1, "C", readonly=True)
HEAP_IN = types.Array(types.uint8, 1, "C", readonly=True)
IDS_IN = types.Array(types.int64, 1, "C", readonly=True)
OFFSETS_IN = types.Array(types.int32, 1, "C", readonly=True)
STAMPS_IN = types.Array(types.uint32, 2, "C", readonly=True)
VALID_IN = types.Array(types.boolean, 1, "C", readonly=True)
