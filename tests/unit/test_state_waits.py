"""Protects the measurement of waits for state: what is looked up, read and waited for is counted once, rows
are counted by their wait, and a resident key counts as none of these."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.files.opened import DROP_BEHIND
from headrace.host.state.reads import ReadAccount
from headrace.store.base.waits import StateWaits, WaitHistogram, bound_ms, bucket_of, merged, quantile_ms
from headrace.testing.contracts.store_contract import AMPLE, TINY, folding
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row
from headrace.wire.state_reads import StateReads, together


def epoch(lab: StoreLab, keys: range) -> StateReads:
    account = ReadAccount(lab.store, lab.home.files, "")
    with account.rows(len(keys)):
        lab.epoch([Row(key, 0, 1) for key in keys], None)
    return account.reads()


def test_keys_that_memory_lacks_are_looked_up_and_read(tmp_path: Path) -> None:
    lab = StoreLab(folding(None, "changes"), tmp_path, AMPLE)
    assert epoch(lab, range(4000)).looked_up == 0
    lab.reopen()
    read = epoch(lab, range(200))
    assert (read.looked_up, read.hits, read.misses) == (200, 0, 200)
    assert 0 < read.blocks <= 200
    assert read.bytes >= read.blocks * 100
    assert read.wait_ms > 0
    assert sum(rows for _, rows in read.waits) == 200
    assert read.wait_quantile_ms(0.999) >= read.wait_ms


def test_resident_keys_wait_for_nothing(tmp_path: Path) -> None:
    lab = StoreLab(folding(None, "changes"), tmp_path, AMPLE)
    epoch(lab, range(500))
    read = epoch(lab, range(500))
    assert read == StateReads(waits=((0, 500),))
    assert read.hit_ratio is None


def test_results_are_the_same_where_pages_are_dropped_behind_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = StoreLab(folding(None, "changes"), tmp_path / "warm", TINY)
    monkeypatch.setenv(DROP_BEHIND, "1")
    cold = StoreLab(folding(None, "changes"), tmp_path / "cold", TINY)
    for lab in (warm, cold):
        lab.epoch([Row(key, 0, 1) for key in range(1000)], None)
        lab.reopen()
    rows = [Row(key, 0, 2) for key in range(0, 1000, 7)]
    assert sorted(cold.epoch(rows, None)) == sorted(warm.epoch(rows, None))


def test_a_wait_is_the_time_of_its_block() -> None:
    times = iter([10.0, 25.0])
    waits = StateWaits(lambda: next(times))
    with waits.waiting():
        pass
    assert waits.counts()["wait_ms"] == 15.0


@given(st.floats(0, 1e6))
def test_a_bucket_holds_its_wait_within_a_fifth(wait_ms: float) -> None:
    bound = bound_ms(bucket_of(wait_ms))
    assert bound <= max(0.0012, wait_ms * 1.2)
    assert wait_ms <= max(0.001, bound * 1.000001)


def test_quantiles_are_of_rows_of_all_partitions() -> None:
    quick, slow = WaitHistogram(), WaitHistogram()
    quick.add(990, 0.0)
    slow.add(9, 10.0)
    slow.add(1, 500.0)
    pairs = merged([quick.pairs(), slow.pairs()])
    assert quantile_ms(pairs, 0.5) == 0.0
    assert 10.0 <= quantile_ms(pairs, 0.995) <= 12.0
    assert 500.0 <= quantile_ms(pairs, 1.0) <= 600.0
    assert quantile_ms((), 0.5) == 0.0
    both = together([StateReads(1.0, 5, 2, 3, 4, quick.pairs()), StateReads(7.0, 1, 1, 1, 1, slow.pairs())])
    assert both == StateReads(7.0, 6, 3, 4, 5, pairs)
    assert StateReads.of({"wait_ms": 2.0, "waits": [[3, 4]], "unknown": 1}) == StateReads(
        2.0, waits=((3, 4),)
    )
