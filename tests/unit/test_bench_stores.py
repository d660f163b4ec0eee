"""Protects `bench stores`: both sides do the same work, so their figures can be compared.

RocksDB reads as many values when windows end as Headrace's store gives out rows.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.bench.stores.cost import Cost, Used
from headrace.bench.stores.events import BOUND_US, batches, rows_of, spec_of
from headrace.bench.stores.gadget import accesses_of
from headrace.bench.stores.headrace import StoreDriver
from headrace.bench.stores.rocksdb import RocksReplay
from headrace.bench.stores.run import measured

BATCHES, EVENTS, MEMORY = 12, 15_000, 8 << 20


def one_of_three(kind: str) -> list[Any]:
    """The three windows of a kind; only the tumbling one is quick."""
    long = [pytest.param(f"{window}_{kind}", marks=pytest.mark.long) for window in ("sliding", "session")]
    return [f"tumbling_{kind}", *long]


def given(name: str, folder: Path) -> list[int]:
    spec = spec_of(name)
    driver = StoreDriver(spec, folder, MEMORY)
    counts = [
        driver.batch(rows_of(batch, spec), batch.watermark_us if spec.window else None)
        for batch in batches(name, BATCHES, EVENTS)
    ]
    driver.close()
    return counts


def replayed(name: str, folder: Path) -> list[int]:
    replay, accesses = RocksReplay(folder), accesses_of(name)
    counts = [replay.batch(accesses.batch(batch)) for batch in batches(name, BATCHES, EVENTS)]
    replay.close()
    return counts


@pytest.mark.parametrize("name", ["tumbling_incremental", "tumbling_holistic"])
def test_time_inside_of_rocksdb_is_a_part_of_the_batches(name: str, tmp_path: Path) -> None:
    """Gets and writes by RocksDB's statistics, scans by the clock; none of the loops that fill a batch."""
    replay, accesses = RocksReplay(tmp_path, counted=True), accesses_of(name)
    begun, inside = time.monotonic(), [replay.inside_s]
    for batch in batches(name, BATCHES, EVENTS):
        replay.batch(accesses.batch(batch))
        inside.append(replay.inside_s)
    whole = time.monotonic() - begun
    replay.close()
    assert all(after > before for before, after in pairwise(inside))
    assert 0 < inside[-1] < whole


def test_the_binding_counts_on_neither_side() -> None:
    cost = Cost(ours=Used(1.0, 0.5, 0.5), theirs=Used(10.0, 8.0, 1.0, inside_s=2.5), events=1_000_000)
    assert cost.binding_share == 0.75
    assert cost.cpu_us == (1.0, 3.0)
    assert cost.ratio == 3.0


def test_few_batches_have_no_slowest_of_a_thousand() -> None:
    seconds = [0.002] * 999
    assert measured([0.1], seconds, 50_000).p999_ms is None
    assert measured([0.1], [*seconds, 0.002], 50_000).p999_ms == pytest.approx(2.0)


@pytest.mark.parametrize("name", one_of_three("incremental"))
def test_both_sides_give_out_the_same_windows(name: str, tmp_path: Path) -> None:
    expected = replayed(name, tmp_path)
    assert sum(expected) > EVENTS
    assert given(name, tmp_path) == expected


@pytest.mark.parametrize("name", one_of_three("holistic"))
def test_holistic_windows_give_out_every_row(name: str, tmp_path: Path) -> None:
    """A list is several values of RocksDB, so the rows are counted in them."""
    accesses, lists = accesses_of(name), {}
    rows = []
    for batch in batches(name, BATCHES, EVENTS):
        operations = accesses.batch(batch)
        lists.update(operations.puts)
        ended = [key for low, high in operations.scans for key in lists if low <= key < high]
        rows.append(sum(len(lists[key]) // 8 for key in (*ended, *operations.reads)))
    assert sum(rows) > EVENTS
    assert given(name, tmp_path) == rows


def test_a_running_aggregate_gives_out_what_changed(tmp_path: Path) -> None:
    accesses = accesses_of("continuous_aggregation")
    changed = [
        len(set(accesses.batch(batch).puts)) for batch in batches("continuous_aggregation", BATCHES, EVENTS)
    ]
    assert given("continuous_aggregation", tmp_path) == changed


def test_an_interval_join_gives_out_every_near_pair_once(tmp_path: Path) -> None:
    events = list(batches("interval_join", BATCHES, EVENTS))
    keys, times, sides = (
        np.concatenate([getattr(batch, name) for batch in events]) for name in ("keys", "times_us", "sides")
    )
    ended = (events[-1].watermark_us // BOUND_US) * BOUND_US  # rows before it are in windows that ended
    pairs = 0
    order = np.lexsort((times, keys))
    keys, times, sides = keys[order], times[order], sides[order]
    for distance in range(1, 64):  # in order of key and time, pairs are neighbours
        near = (keys[distance:] == keys[:-distance]) & (times[distance:] - times[:-distance] <= BOUND_US)
        if not near.any():
            break
        pairs += int((near & (sides[distance:] != sides[:-distance]) & (times[distance:] < ended)).sum())
    assert pairs > EVENTS
    assert sum(given("interval_join", tmp_path)) == pairs


@pytest.mark.long
@pytest.mark.parametrize("name", ["tumbling_join", "sliding_join", "continuous_join"])
def test_joins_find_pairs(name: str, tmp_path: Path) -> None:
    assert sum(given(name, tmp_path)) > 0
