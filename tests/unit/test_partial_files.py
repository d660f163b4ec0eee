"""Protects ranged reads: what a read gets equals the file whatever is present, requests are merged, each
byte is fetched once by concurrent readers, evicted bytes come back, short replies never become state.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.clock import SYSTEM_CLOCK, wait_until
from headrace.errors import StateCorrupt, TryAgain
from headrace.files.fetch import Costs, Fetcher
from headrace.files.partial import PartialFile
from headrace.files.ranges import (
    UNIT_BYTES,
    all_units,
    calls,
    cut,
    gap_bytes,
    pieces,
    requests,
    runs,
    units_of,
)
from headrace.files.space import PartialSpace

SIZE = 40 * UNIT_BYTES + 1234
DATA = np.random.default_rng(1).bytes(SIZE)


@dataclass(frozen=True)
class Sized:
    """A range of so many bytes."""

    nbytes: int


class NoLatency(Costs):
    """Requests cost nothing, so that no gap is read."""

    latency_ms = 0.0

    def __init__(self) -> None:
        self.bytes_per_ms = 1.0

    def add(self, nbytes: int, lasted_ms: float) -> None:
        """Learns nothing."""


class Storage:
    """The original of one file."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data, self.requests = data, list[tuple[int, int]]()
        self.error: TryAgain | None = None
        self.lengths: list[int] = []  # of the next replies
        self.gate = threading.Event()
        self.gate.set()

    def read(self, start: int, length: int) -> bytes:
        self.requests.append((start, length))
        self.gate.wait()
        if self.error is not None:
            raise self.error
        if self.lengths:
            length = self.lengths.pop()
        return self.data[start : start + length]

    def size(self) -> int:
        return len(self.data)


def space(limit: int = 1 << 30, folder: Path | None = None, gap: bool = False) -> PartialSpace:
    made = PartialSpace(folder, limit, Fetcher(parallel=4))
    if not gap:
        made.fetcher.costs = NoLatency()
    return made


def opened(storage: Storage, room: PartialSpace, size: int = SIZE) -> PartialFile:
    return PartialFile(room, "there", size, storage.read, storage.size, at_once=3)


def read(file: PartialFile, *ranges: tuple[int, int]) -> list[bytes]:
    starts, ends = np.array(sorted(ranges), np.int64).T
    with file.reading():
        file.ensure(starts, ends)
        return [os.pread(file.fd, end - start, start) for start, end in sorted(ranges)]


spans = st.tuples(st.integers(0, SIZE - 1), st.integers(1, 3 * UNIT_BYTES)).map(
    lambda pair: (pair[0], min(SIZE, sum(pair)))
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(spans, min_size=1, max_size=5), max_size=12),
    st.sampled_from([UNIT_BYTES, 5 * UNIT_BYTES, 1 << 30]),
    st.booleans(),
)
def test_what_is_read_equals_the_file(reads: list[list[tuple[int, int]]], limit: int, gap: bool) -> None:
    storage, room = Storage(), space(limit, gap=gap)
    file, largest = opened(storage, room), 0
    for ranges in reads:
        assert read(file, *ranges) == [DATA[start:end] for start, end in sorted(ranges)]
        largest = max(largest, len(units_of(*np.array(sorted(ranges), np.int64).T)) * UNIT_BYTES)
        assert room.used_bytes == file.present_bytes
        assert gap or room.used_bytes <= max(limit, largest)
    if limit == 1 << 30 and not gap:
        whole = units_of(*np.array(sorted(sum(reads, [(0, 1)])), np.int64).T)
        fetched = sum(-(-length // UNIT_BYTES) for _, length in storage.requests)
        assert fetched <= len(whole), "a unit is fetched once"
    file.close()
    assert room.used_bytes == 0


def test_many_readers_fetch_a_range_once(tmp_path: Path) -> None:
    storage = Storage()
    file = opened(storage, space(folder=tmp_path))
    storage.gate.clear()
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(read, file, (5000, 9000)) for _ in range(8)]
        while not storage.requests:
            pass
        storage.gate.set()
        assert {answer.result()[0] for answer in answers} == {DATA[5000:9000]}
    assert len(storage.requests) == 1
    assert list((tmp_path / "ranges").iterdir()) == [], "the file has no name"


def test_an_error_leaves_the_range_to_the_next_reader() -> None:
    storage = Storage()
    file = opened(storage, space())
    storage.error = TryAgain("away")
    with pytest.raises(TryAgain):
        read(file, (0, 10))
    storage.error = None
    assert read(file, (0, 10)) == [DATA[:10]]


def test_a_short_reply_is_repeated_and_a_short_file_is_corrupt() -> None:
    storage = Storage()
    file, storage.lengths = opened(storage, space()), [3, 0]
    assert read(file, (0, 10)) == [DATA[:10]]
    cut_off = opened(Storage(DATA[:5000]), space())
    with pytest.raises(StateCorrupt, match="has 5000 bytes"):
        read(cut_off, (4000, 6000))


def test_bytes_used_since_the_last_eviction_stay() -> None:
    storage, room = Storage(), space(12 * UNIT_BYTES)
    file = opened(storage, room)
    hot = (0, 4 * UNIT_BYTES)
    for at in range(5, 39):
        read(file, hot)
        read(file, (at * UNIT_BYTES, (at + 1) * UNIT_BYTES))
    assert room.reads.evicted_bytes > 0
    storage.requests.clear()
    read(file, hot)
    assert storage.requests == []


def test_a_scan_does_not_wash_hot_bytes_out() -> None:
    storage, room = Storage(), space(12 * UNIT_BYTES)
    file = opened(storage, room)
    read(file, (0, 6 * UNIT_BYTES))
    for at in range(6, 39):
        with file.reading():
            file.ensure(np.array([at * UNIT_BYTES]), np.array([(at + 1) * UNIT_BYTES]), once=True)
    storage.requests.clear()
    read(file, (0, 6 * UNIT_BYTES))
    assert storage.requests == []


def test_another_threads_read_keeps_its_bytes() -> None:
    storage, room = Storage(), space(2 * UNIT_BYTES)
    busy, other = opened(storage, room), opened(storage, room)
    with ThreadPoolExecutor(1) as pool, busy.reading():
        busy.ensure(np.array([0]), np.array([2 * UNIT_BYTES]))
        pool.submit(read, other, (0, 2 * UNIT_BYTES)).result()
        assert os.pread(busy.fd, 100, 0) == DATA[:100]
    assert busy.present_bytes == 2 * UNIT_BYTES


def test_an_announced_range_needs_no_request_later() -> None:
    storage = Storage()
    file = opened(storage, space())
    file.announce(np.array([0]), np.array([8000]))
    while file.present_bytes < 2 * UNIT_BYTES:
        pass
    storage.requests.clear()
    assert read(file, (0, 8000)) == [DATA[:8000]]
    assert storage.requests == []


# ── arithmetic ───────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.integers(0, 200), min_size=1, unique=True).map(sorted),
    st.integers(0, 20),
    st.integers(1, 9),
)
def test_requests_cover_the_units_and_skip_large_gaps(units: list[int], gap: int, most: int) -> None:
    firsts, ends = requests(np.array(units, np.int64), gap * UNIT_BYTES, most * UNIT_BYTES)
    covered = [unit for first, end in zip(firsts, ends, strict=True) for unit in range(first, end)]
    assert covered == sorted(set(covered))
    assert set(units) <= set(covered)
    assert max(ends - firsts) <= most
    extra = set(covered) - set(units)
    for unit in extra:
        below, above = max(u for u in units if u < unit), min(u for u in units if u > unit)
        assert above - below - 1 <= gap


def test_adjacent_units_are_one_run() -> None:
    assert runs(np.array([1, 2, 5, 6, 7, 9])) == [(1, 3), (5, 8), (9, 10)]
    assert runs(np.empty(0, np.int64)) == []
    assert [part.tolist() for part in cut(np.array([0, 10]), np.array([5, 11]), 2)] == [
        [0, 2, 4, 10],
        [2, 4, 5, 11],
    ]


def test_gaps_follow_latency_and_bandwidth() -> None:
    assert gap_bytes(23.0, 625_000, 64) == 224_609
    assert gap_bytes(1.5, 625_000, 64) == 14_648
    assert gap_bytes(0.0, 625_000, 64) == 0


def test_bytes_between_two_ranges_are_kept_only_in_an_empty_cache() -> None:
    ranges = ((0, UNIT_BYTES), (4 * UNIT_BYTES, 5 * UNIT_BYTES))
    for limit, kept in ((10, 5), (9, 2)):
        storage, room = Storage(), space(limit * UNIT_BYTES, gap=True)
        file = opened(storage, room)
        assert read(file, *ranges) == [DATA[start:end] for start, end in ranges]
        assert storage.requests == [(0, 5 * UNIT_BYTES)], "one request is cheaper than two"
        assert room.used_bytes == kept * UNIT_BYTES
        assert room.reads.fetched_bytes == 5 * UNIT_BYTES


def test_scans_leave_room_for_reads_that_are_waited_for() -> None:
    fetcher, gate, begun = Fetcher(parallel=8, in_flight_bytes=100), threading.Event(), list[int]()

    def wait(number: int) -> None:
        begun.append(number)
        gate.wait()

    scan = [(40, partial(wait, number)) for number in range(4)]
    other = threading.Thread(target=lambda: fetcher.run(scan, once=True))
    other.start()
    try:
        assert wait_until(lambda: bool(begun), 10_000, 1, SYSTEM_CLOCK)
        done = threading.Event()
        fetcher.run([(60, done.set)])
        assert done.is_set()
        assert begun == [0]
    finally:
        gate.set()
        other.join()
        fetcher.close()
    assert sorted(begun) == [0, 1, 2, 3]


def test_an_eviction_leaves_the_descriptor_of_a_closed_file_alone(tmp_path: Path) -> None:
    file = opened(Storage(), space(folder=tmp_path))
    read(file, (0, SIZE))
    file.cool()
    number, other = file.fd, tmp_path / "other"
    other.write_bytes(DATA)
    file.close()
    descriptor = os.open(other, os.O_RDWR)
    if descriptor != number:  # the system gives the number to the next file
        os.dup2(descriptor, number)
        os.close(descriptor)
    evicted = file.shrink(SIZE, None)
    os.close(number)
    assert evicted == 0
    assert other.read_bytes() == DATA


@given(
    st.lists(st.integers(0, 400), unique=True, min_size=1, max_size=60).map(sorted),
    st.integers(0, 8),
    st.integers(1, 10),
)
def test_calls_have_all_units_once_in_ranges_of_bounded_size(
    units: list[int], gap: int, at_once: int
) -> None:
    wanted = np.array(units, np.int64)
    firsts, ends = requests(wanted, gap * UNIT_BYTES, 16 * UNIT_BYTES)
    kept = [unit for each in pieces(wanted, firsts, ends) for a, b in each for unit in range(a, b)]
    assert kept == units
    inside = {unit for a, b in zip(firsts, ends, strict=True) for unit in range(a, b)}
    assert set(all_units(firsts, ends).tolist()) == inside
    ranges = [Sized((b - a) * UNIT_BYTES) for a, b in zip(firsts.tolist(), ends.tolist(), strict=True)]
    groups = calls(ranges, at_once, 32 * UNIT_BYTES)
    assert [each for group in groups for each in group] == ranges
    for group in groups:
        assert len(group) <= at_once
        assert len(group) == 1 or sum(each.nbytes for each in group) <= 32 * UNIT_BYTES


def test_a_call_fetches_several_ranges_and_each_counts_as_a_request() -> None:
    storage, room = Storage(), space()
    called: list[int] = []

    def read_ranges(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        called.append(len(ranges))
        return [storage.read(*each) for each in ranges]

    place = (room, "there", SIZE, storage.read, storage.size)
    file = PartialFile(*place, at_once=4, read_ranges=read_ranges)
    ranges = [(2 * n * UNIT_BYTES, (2 * n + 1) * UNIT_BYTES) for n in range(10)]
    assert read(file, *ranges) == [DATA[start:end] for start, end in ranges]
    assert sorted(called) == [2, 4, 4]
    assert room.reads.requests == 10
    storage.lengths = [7]  # a short reply within a call: only that range is read again
    assert read(file, (SIZE - 5000, SIZE)) == [DATA[-5000:]]
