"""Protects against keys that share one hash: they stay separate keys, and their number does not make the
work per key grow.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.kernels.core.bytes import USED
from headrace.kernels.tables import table as kernel
from headrace.plan.spec import HASH, OperatorSpec
from headrace.store.tables.table import Table
from headrace.testing.contracts import store_lab
from headrace.testing.contracts.store_contract import (
    SECOND,
    SESSION,
    SLIDE,
    TUMBLE,
    check,
    folding,
    keeping,
)
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel, batch_of

ONE_HASH = 0x1234_5678_9ABC_DEF0
KEYS = 32_000
CROWD = Table.crowd
SMALL = 1 << 15  # bytes of memory: keys are looked up in segments
CASES = {
    "folds": folding(None, "changes"),
    "windows": folding(TUMBLE, "final"),
    "sessions": folding(SESSION, "final"),
    "kept": keeping(SLIDE),
    "kept sessions": keeping(SESSION),
}


def test_keys_of_one_hash_do_not_queue_behind_each_other() -> None:
    """A probe ends at the first empty slot: the longest row of occupied slots bounds its work."""
    hashes = np.zeros(KEYS, np.uint64)
    slots = np.zeros(1 << (4 * KEYS - 1).bit_length(), np.uint64)
    rows, stamps = np.zeros((KEYS, 1), np.uint64), np.zeros((KEYS, 2), np.uint32)
    counters, heap = np.zeros(8, np.int64), np.zeros(0, np.uint8)
    probes = np.full(KEYS, ONE_HASH, np.uint64), np.arange(KEYS, dtype=np.uint64).reshape(-1, 1)
    ids, fresh, fixed = np.empty(KEYS, np.int64), np.empty(KEYS, np.int64), np.zeros(1, np.bool_)
    arrays = (slots, rows, hashes, stamps, heap, counters)
    assert kernel.upsert(*arrays, *probes, heap, fixed, CROWD, 0, 1, 1, False, ids, fresh) == KEYS
    assert (ids == np.arange(KEYS)).all()
    assert counters[USED] == 0
    assert _longest(slots) < 100

    again = np.zeros(len(slots), np.uint64)
    kernel.reindex(again, hashes, rows, heap, fixed, CROWD, KEYS)
    assert _longest(again) < 100
    kernel.find(again, rows, heap, *probes, heap, fixed, CROWD, ids)
    assert (ids == np.arange(KEYS)).all()


def _longest(slots: np.ndarray) -> int:
    """The longest row of occupied slots."""
    empty = np.flatnonzero(slots == 0)
    return int(np.diff(empty, prepend=-1, append=len(slots)).max()) - 1


@pytest.mark.parametrize("share_bytes", [64 << 20, SMALL], ids=["in memory", "in segments"])
@pytest.mark.parametrize("spec", CASES.values(), ids=CASES.keys())
def test_keys_of_one_hash_are_separate_keys(
    spec: OperatorSpec, share_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_one_hash(spec: OperatorSpec, rows: list[Row]) -> pa.RecordBatch:
        batch = batch_of(spec, rows)
        hashes = pa.array(np.full(batch.num_rows, ONE_HASH, np.int64))
        return batch.set_column(batch.schema.get_field_index(HASH), batch.schema.field(HASH), hashes)

    monkeypatch.setattr(store_lab, "batch_of", of_one_hash)
    monkeypatch.setattr(store_lab, "BLOCK_ROWS", 500)
    lab, model = StoreLab(spec, tmp_path, share_bytes), StoreModel(spec)
    windowed = spec.window is not None
    for number in range(4):
        keys = range(number % 2, 700, 1 + number % 2)
        rows = [Row(key, number * SECOND + key * 1000, key + number) for key in keys]
        check(lab, model, rows, (number - 2) * SECOND if windowed else None)
    lab.reopen()
    check(lab, model, [Row(key, 5 * SECOND, 1) for key in range(900)], 90 * SECOND if windowed else None)
