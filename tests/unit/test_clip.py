"""Protects shared segments: of a clipped segment every read gives the rows of its hash groups, and no
other, whatever else the file has. Counts are close, and the groups of all partitions are all groups."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plan.partitions.groups import ALL_GROUPS, GROUPS, Groups, groups_of, partition_of
from headrace.row.run import Run
from headrace.store.segments.clip import ClippedSegment
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import lookup_all
from headrace.store.segments.writer import write_segment

WIDTH = 2  # a hash and a value; the first word is the key
ROWS = 5000


@pytest.fixture(scope="module")
def hashes() -> np.ndarray:
    return np.sort(np.random.default_rng(4).integers(0, 1 << 64, ROWS, np.uint64))


@pytest.fixture(scope="module")
def by_hash(tmp_path_factory: pytest.TempPathFactory, hashes: np.ndarray) -> SegmentFile:
    words = np.stack([hashes, np.arange(ROWS, dtype=np.uint64)], axis=1)
    return written(tmp_path_factory.mktemp("clip") / "h", Run(hashes, words, np.empty(0, np.uint8)))


@pytest.fixture(scope="module")
def by_time(tmp_path_factory: pytest.TempPathFactory, hashes: np.ndarray) -> SegmentFile:
    shuffled = np.random.default_rng(5).permutation(hashes)
    words = np.stack([shuffled, np.arange(ROWS, dtype=np.uint64)], axis=1)
    run = Run(np.arange(ROWS, dtype=np.uint64), words, np.empty(0, np.uint8))
    return written(tmp_path_factory.mktemp("clip") / "t", run)


def written(path: Path, run: Run) -> SegmentFile:
    write_segment(path, WIDTH, [(7, [run])], ())
    return SegmentFile.open(path, WIDTH, ())


def inside(hashes: np.ndarray, groups: Groups) -> np.ndarray:
    numbers = hashes >> np.uint64(54)
    return hashes[(numbers >= groups.low) & (numbers < groups.high)]


RANGES = st.tuples(st.integers(0, GROUPS - 1), st.integers(1, 300)).map(
    lambda pair: Groups(pair[0], min(GROUPS, sum(pair)))
)


@settings(max_examples=30, deadline=None)
@given(groups=RANGES, chunk=st.sampled_from([10, 700, 100_000]))
def test_a_scan_has_the_rows_of_the_groups(
    by_hash: SegmentFile, by_time: SegmentFile, hashes: np.ndarray, groups: Groups, chunk: int
) -> None:
    expected = inside(hashes, groups)
    clipped = ClippedSegment(by_hash, groups, len(expected))
    assert np.array_equal(np.concatenate([run.order for run in clipped.scan(7, chunk)] or [[]]), expected)
    assert np.array_equal(clipped.scan_range(7, 0, 1 << 64).order, expected)
    half = groups.hashes[0] + (1 << 53)
    assert np.array_equal(clipped.scan_range(7, half, 1 << 64).order, expected[expected >= half])
    assert abs(clipped.count_range(7, 0, 1 << 64) - len(expected)) <= 200
    timed = ClippedSegment(by_time, groups, len(expected), hash_word=0)
    scanned = np.concatenate([run.words[:, 0] for run in timed.scan(7, chunk)])
    assert np.array_equal(np.sort(scanned), expected)
    early = timed.scan_range(7, 0, 1000)
    assert set(early.words[:, 0].tolist()) <= set(expected.tolist())
    assert (early.order < 1000).all()


@settings(max_examples=30, deadline=None)
@given(groups=RANGES)
def test_a_look_up_finds_only_rows_of_the_groups(
    by_hash: SegmentFile, hashes: np.ndarray, groups: Groups
) -> None:
    """Also of hashes that the partition has and the file has, for another of its ranges."""
    clipped, wanted = ClippedSegment(by_hash, groups, 100), hashes[::3].copy()
    probe = Run(wanted, wanted.reshape(-1, 1).copy(), np.empty(0, np.uint8))
    matches = lookup_all([clipped], 7, probe)
    assert np.array_equal(wanted[matches.mask], inside(wanted, groups))
    assert np.array_equal(clipped.rows_of(7, wanted).order, inside(wanted, groups))
    turns = np.random.default_rng(1).permutation(len(wanted))
    assert np.array_equal(clipped.rows_of(7, wanted, turns).order, inside(wanted, groups))


def test_a_clip_without_rows_has_no_section(by_hash: SegmentFile) -> None:
    low = int(by_hash.sections[7].min_hash >> 54)
    assert low > 0 or not ClippedSegment(by_hash, Groups(0, 0), 0).sections
    assert set(ClippedSegment(by_hash, ALL_GROUPS, ROWS).sections) == {7}


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 64, 1000, 1024])
def test_the_groups_of_all_partitions_are_all_groups(partitions: int) -> None:
    ranges = [groups_of(number, partitions) for number in range(partitions)]
    assert [ranges[0].low, ranges[-1].high] == [0, GROUPS]
    assert all(left.high == right.low for left, right in itertools.pairwise(ranges))
    for number, groups in enumerate(ranges):
        for group in range(groups.low, groups.high):
            assert partition_of(group << 54, partitions) == number
            assert partition_of((group << 54) - (1 << 64), partitions) == number
