"""Protects the order of rows within groups: by all keys, stable, whatever the size of a group."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.kernels.groups.group import sort_rows


@pytest.mark.parametrize(("rows", "groups"), [(0, 0), (500, 300), (3_000, 40), (20_000, 3)])
@pytest.mark.parametrize("keys", [0, 1, 3])
def test_rows_come_by_group_then_by_keys(rows: int, groups: int, keys: int) -> None:
    random = np.random.default_rng(rows + keys)
    of_row = random.integers(0, max(1, groups), rows)
    values = random.integers(0, 7, (keys, rows)).astype(np.uint64) << np.uint64(60)
    sample = np.flatnonzero(random.random(rows) < 0.8)
    order, starts = sort_rows(of_row, groups, sample, values)
    expected = sample[np.lexsort([*(key[sample] for key in values), of_row[sample]])] if rows else sample
    assert order.tolist() == expected.tolist()
    assert np.diff(starts).tolist() == np.bincount(of_row[sample], minlength=groups).tolist()[:groups]
