"""Protects the compaction policy: few segments at any time, and each row rewritten O(log state) times."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store.segments.compact import FAN_IN, FAN_IN_UNREAD, PARTS_MANY, RATIO, plan, plan_parts, tier

BASE = 16
sizes = st.lists(st.integers(1, 5000), max_size=150)


def replay(commits, overlap):
    """Apply every plan after every commit; `overlap` is the share of merged bytes that were duplicates."""
    segments, rewritten, most = [], 0, 0
    for commit in commits:
        segments.append(commit)
        while (chosen := plan(segments, base=BASE)) is not None:
            merged = segments[chosen]
            assert len(merged) > 1
            output = max(max(merged), math.ceil(sum(merged) * (1 - overlap)))
            segments[chosen] = [output]
            rewritten += output
        most = max(most, len(segments))
    return segments, rewritten, most


@settings(max_examples=200, deadline=None)
@given(sizes, st.sampled_from([0, 0.2, 0.5, 1]))
def test_count_and_amplification_are_bounded(commits, overlap):
    segments, rewritten, most = replay(commits, overlap)
    tiers = tier(sum(commits), base=BASE) + 1
    assert most <= (FAN_IN - 1) * tiers
    assert rewritten <= 2 * tiers * sum(commits)
    if not overlap:
        assert sum(segments) == sum(commits)


def test_even_commits_are_rewritten_once_per_tier():
    _, rewritten, most = replay([BASE] * 4**5, 0)
    assert rewritten <= 5 * BASE * 4**5
    assert most <= (FAN_IN - 1) * 6


def test_a_small_segment_before_a_large_one_is_swallowed():
    assert plan([BASE * RATIO**3, BASE, BASE * RATIO**2], base=BASE) == slice(1, 3)


def test_a_tier_waits_until_it_is_full():
    assert plan([BASE] * (FAN_IN - 1), base=BASE) is None
    assert plan([BASE] * FAN_IN, base=BASE) == slice(0, FAN_IN)
    assert plan([], base=BASE) is None


def parts_of(*slices, rows=100):
    return [dict.fromkeys(of_segment, rows) for of_segment in slices]


def planned(parts, reads):
    return plan_parts(parts, [100] * len(parts), lambda _: reads)


def test_parts_of_a_past_slice_are_merged_once_and_only_where_many_windows_read_them():
    filled = parts_of([0], [0], [0], [10])
    assert planned(filled, reads=5) == slice(0, 3)
    assert planned(filled, reads=1) is None, "a window that is read once reads them as they are"
    assert planned(parts_of([0], [10], [20]), reads=5) is None, "no key can be in two of them"
    assert planned([{0: 300}, {0: 5}, {10: 100}], reads=5) is None, "hardly any row would disappear"
    assert planned(parts_of([0], [0], [10], [10], [20]), reads=5) == slice(2, 4), "which is read longest"


def test_the_slice_that_fills_is_merged_by_size():
    filling = [[0]] * FAN_IN_UNREAD
    assert planned(parts_of(*filling[1:]), reads=5) is None
    assert planned(parts_of([-10], *filling), reads=5) == slice(1, 1 + FAN_IN_UNREAD)


def test_very_many_segments_are_merged_whatever_their_slices_are():
    apart = [[number] for number in range(PARTS_MANY + 1)]
    assert planned(parts_of(*apart[1:]), reads=1) is None
    assert planned(parts_of(*apart), reads=1) == slice(0, PARTS_MANY + 1)


def test_nothing_is_planned_for_no_parts():
    assert planned([], reads=5) is None


def test_a_tier_that_nobody_reads_waits_longer():
    assert plan([BASE] * (FAN_IN_UNREAD - 1), base=BASE, unread=True) is None
    assert plan([BASE] * FAN_IN_UNREAD, base=BASE, unread=True) == slice(0, FAN_IN_UNREAD)
