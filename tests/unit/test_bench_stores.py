"""Protects `bench stores`: both sides do the same work, so their figures can be compared.

RocksDB reads as many values when windows end as Headrace's store gives out rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.bench.stores.events import BOUND_US, batches, rows_of, spec_of
from headrace.bench.stores.gadget import accesses_of
from headrace.bench.stores.headrace import StoreDriver
from headrace.bench.stores.rocksdb import RocksReplay

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
