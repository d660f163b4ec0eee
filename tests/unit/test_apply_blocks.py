"""Protects how rows reach a store that reads its files for them: in large blocks, ordered by hash."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.host.state.service import PartitionService
from headrace.plan.spec import HASH
from headrace.store.fold.rmw import RmwStore
from headrace.testing.simulation.model import SPEC, batch_of, state_of
from headrace.wire.contract import Ticket

KEYS, ROWS, SENT, BLOCK = 97, 400, 20, 32
Parts = list[pa.RecordBatch]


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Parts]:
    """What the store was given in each of three batches, with memory for some of the keys only."""
    parts: list[Parts] = []
    apply = RmwStore.apply

    def watched(store: RmwStore, rows: pa.RecordBatch) -> None:
        parts[-1].append(rows)
        apply(store, rows)

    monkeypatch.setattr(RmwStore, "apply", watched)
    monkeypatch.setattr("headrace.host.state.transaction.APPLY_ROWS", BLOCK)
    service, totals = PartitionService(1, share_min=4096), defaultdict(lambda: (0, 0))
    for number in range(3):
        base, name = number - 1 if number else None, str(tmp_path)
        transaction = service.begin(Ticket("start", "q", SPEC, 0, number, base, number + 1, name, 3))
        rows = [(f"key-{row % KEYS}", number * ROWS + row) for row in range(ROWS)]
        parts.append([])
        for start in range(0, ROWS, SENT):
            transaction.apply(batch_of(rows[start : start + SENT]))
        for key, amount in rows:
            count, total = totals[key]
            totals[key] = (count + 1, total + amount)
        assert state_of(transaction.finish([])) == totals
        transaction.commit()
    service.close()
    return parts


def test_while_all_keys_are_in_memory_rows_go_on_as_they_come(parts: list[Parts]) -> None:
    first = parts[0][0]
    assert BLOCK <= first.num_rows < BLOCK + SENT
    assert first.column("v0").to_pylist() == list(range(first.num_rows))


def test_then_neighbouring_parts_have_neighbouring_hashes(parts: list[Parts]) -> None:
    hashes = [part.column(HASH).to_pylist() for part in parts[-1]]
    assert sum(map(len, hashes)) == ROWS
    assert max(map(len, hashes)) < 2 * BLOCK
    assert all(part == sorted(part) for part in hashes)
    returns = sum(before[-1] > after[0] for before, after in pairwise(hashes))
    assert returns < len(hashes) // 2, "most parts go on where the one before ended"


def test_rows_of_a_key_stay_in_the_order_in_which_they_came(parts: list[Parts]) -> None:
    amounts = defaultdict(list)
    for part in parts[-1]:
        for key, amount in zip(part.column("k0").to_pylist(), part.column("v0").to_pylist(), strict=True):
            amounts[key].append(amount)
    assert len(amounts) == KEYS
    assert all(values == sorted(values) for values in amounts.values())
