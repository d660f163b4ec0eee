"""Protects the prefetching manager in a store: what is read ahead is not read again, floods stay within
memory, failures are lost hints, and a row that comes early joins its fetch."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.ahead import manager, staged
from headrace.store.ahead.hints import NO_HINTS, Hints, WaitingHints, distinct, merged
from headrace.store.base.ahead_counts import AheadCounts
from headrace.store.base.room import STAGED_MAX
from headrace.store.base.share import FixedShare
from headrace.store.base.waits import quantile_ms
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Answer
from headrace.testing.clock import ManualClock
from headrace.testing.contracts.store_contract import AMPLE, folding
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, batch_of

KEYS = 61  # as many as there are hashes


@pytest.fixture
def lab(tmp_path: Path) -> StoreLab:
    """State on disk, none in memory."""
    lab = StoreLab(folding(None, "changes"), tmp_path, AMPLE)
    lab.epoch([Row(key, 0, 1) for key in range(KEYS)], None)
    lab.reopen()
    return lab


def hint(lab: StoreLab, keys: range) -> None:
    lab.store.expect(batch_of(lab.spec, [Row(key, 0, 1) for key in keys]))


def test_rows_that_were_read_ahead_are_not_read_again(lab: StoreLab) -> None:
    with ThreadPoolExecutor(2) as threads:
        lab.store.look_ahead(threads)
        hint(lab, range(40))
    result = lab.epoch([Row(key, 0, 2) for key in range(50)], None)
    waits, ahead = lab.store.waited(), lab.store.ahead_counts()
    assert (waits.keys, waits.hits) == (50, 40)
    assert (ahead.hints, ahead.fetched, ahead.used, ahead.in_vain) == (40, 40, 40, 0)
    assert all(row[1] == 2 for row in result), "all of them had state"
    assert waits.blocks <= 10


def test_absent_keys_are_known_to_be_absent(lab: StoreLab) -> None:
    with ThreadPoolExecutor(1) as threads:
        lab.store.look_ahead(threads)
        hashes = np.array([1 << 50, 2 << 50], np.uint64)
        lab.store.lookahead.hint(0, hashes, np.zeros(2, np.bool_), 1)
    rows = batch_of(lab.spec, [Row(500, 0, 1), Row(501, 0, 1)])
    lab.begin()
    lab.store.apply(rows.set_column(0, rows.schema.field(0), pa.array(hashes.view(np.int64))))
    assert lab.store.waited().hits == 2
    assert lab.store.waited().blocks == 0


def test_a_row_joins_the_fetch_that_is_on_its_way(lab: StoreLab, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate, read = threading.Event(), threading.Event(), SegmentFile.rows_of

    def slow(*arguments: object) -> object:
        begun.set()
        gate.wait()
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentFile, "rows_of", slow)
    with ThreadPoolExecutor(1) as threads:
        lab.store.look_ahead(threads)
        hint(lab, range(KEYS))
        begun.wait()
        opener = threading.Timer(0.0, gate.set)
        opener.start()
        result = lab.epoch([Row(key, 0, 2) for key in range(KEYS)], None)
        opener.join()
    assert lab.store.waited().hits == KEYS
    assert lab.store.waited().blocks == 0
    assert all(row[1] == 2 for row in result)


def test_a_failed_fetch_is_a_lost_hint(lab: StoreLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise OSError("no such disk")

    monkeypatch.setattr(SegmentFile, "rows_of", broken)
    with ThreadPoolExecutor(1) as threads:
        lab.store.look_ahead(threads)
        hint(lab, range(KEYS))
    result = lab.epoch([Row(key, 0, 2) for key in range(KEYS)], None)
    assert lab.store.ahead_counts().failed == KEYS
    assert lab.store.waited().hits == 0
    assert all(row[1] == 2 for row in result)


def test_a_flood_of_hints_stays_within_its_part_of_memory(tmp_path: Path) -> None:
    share = 256 << 10
    lab = StoreLab(folding(None, "changes"), tmp_path, share)
    lab.epoch([Row(key, 0, 1) for key in range(KEYS)], None)
    lab.reopen()
    random = np.random.default_rng(3)
    with ThreadPoolExecutor(2) as threads:
        lab.store.look_ahead(threads)
        for _ in range(20):
            hashes = distinct(random.integers(0, 1 << 63, 20_000).astype(np.uint64))
            lab.store.lookahead.hint(0, hashes, np.zeros(len(hashes), np.bool_), 1)
            assert lab.store.lookahead.nbytes <= STAGED_MAX.of(lab.store.share)
        needed = lab.store.needed_bytes
    assert lab.store.ahead_counts().dropped > 0
    assert needed < share, "hints do not raise the partition's claim"
    result = lab.epoch([Row(key, 0, 2) for key in range(KEYS)], None)
    assert all(row[1] == 2 for row in result)


def test_rows_that_no_batch_used_were_read_in_vain(lab: StoreLab) -> None:
    with ThreadPoolExecutor(1) as threads:
        lab.store.look_ahead(threads)
        hint(lab, range(30))
    for _ in range(manager.COMMITS_MAX):
        lab.epoch([Row(50, 0, 1)], None)
    counts = lab.store.ahead_counts().drained()
    assert (counts.in_vain, counts.used) == (30, 0)
    assert lab.store.lookahead.nbytes == 0
    assert lab.store.ahead_counts().hints == 0


def test_waiting_hints_have_one_entry_per_hash_with_its_latest_time() -> None:
    one = Hints(np.array([1, 5], np.uint64), np.array([9, 4]), np.array([100, 100]))
    two = Hints(np.array([5, 7], np.uint64), np.array([6, 2]), np.array([200, 200]))
    both = merged(one, two)
    assert (both.hashes.tolist(), both.times.tolist()) == ([1, 5, 7], [9, 6, 2])
    assert both.arrivals_ms.tolist() == [100, 100, 200]
    waiting = WaitingHints(3)
    assert waiting.add(0, both) == 0
    assert waiting.add(0, both) == 3, "a full buffer takes no more"
    entry = waiting.take(2)
    assert entry is not None
    assert entry[1].hashes.tolist() == [5, 7], "those expected first"
    waiting.remove(0, np.array([1], np.uint64))
    assert waiting.take(2) is None
    assert len(merged(NO_HINTS, one)) == 2


def test_the_slack_of_a_hint_ends_when_its_row_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row waits for the read, which ends later: that is no slack."""
    clock, work = ManualClock(), []

    class Later(Executor):
        def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:  # type: ignore[override]
            future: Future[Any] = Future()
            future.set_running_or_notify_cancel()
            work.append(lambda: function(*arguments))
            return future

    class ReadOnWait(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock.advance_ms(100)
            work.pop()()
            return super().wait(timeout)

    monkeypatch.setattr(staged, "Event", ReadOnWait)
    layout, counts, hashes = RowLayout(folding(None, "changes")), AheadCounts(), np.array([7], np.uint64)
    ahead = manager.PrefetchManager(layout, list, Later(), FixedShare(1 << 20), counts, clock)
    ahead.hint(0, hashes, 1)
    clock.advance_ms(20)
    probe = Run(hashes, np.zeros((1, layout.width), np.uint64), np.empty(0, np.uint8))
    assert ahead.answer(0, Answer(probe, layout.width)).all()
    assert quantile_ms(counts.slacks.pairs(), 0.01) < 25
