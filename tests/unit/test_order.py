"""Protects the order of hashes: stable, whatever they are like."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.kernels.core.order import by_hash

RANDOM = np.random.default_rng(3)
EVEN = RANDOM.integers(0, 1 << 63, 20_000).astype(np.uint64)
HASHES = {
    "none": EVEN[:0],
    "one": EVEN[:1],
    "even": EVEN,
    "of one partition": EVEN >> np.uint64(3) | np.uint64(5 << 61),
    "few, often": EVEN[RANDOM.integers(0, 50, 20_000)],
    "in two heaps": np.concatenate([EVEN[:9_000] % np.uint64(999), ~(EVEN[9_000:] % np.uint64(999))]),
    "falling": np.arange(20_000, 0, -1).astype(np.uint64),
    "all alike": np.full(500, np.uint64((1 << 64) - 1)),
}


@pytest.mark.parametrize("hashes", HASHES.values(), ids=list(HASHES))
def test_rows_are_ordered_by_hash_and_keep_their_order(hashes: np.ndarray) -> None:
    assert by_hash(hashes).tolist() == np.argsort(hashes, kind="stable").tolist()
