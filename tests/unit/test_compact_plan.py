"""Protects the compaction policy: few segments at any time, and each row rewritten O(log state) times."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store.compact import FAN_IN, FAN_IN_UNREAD, RATIO, plan, tier

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


def test_a_tier_that_nobody_reads_waits_longer():
    assert plan([BASE] * (FAN_IN_UNREAD - 1), base=BASE, unread=True) is None
    assert plan([BASE] * FAN_IN_UNREAD, base=BASE, unread=True) == slice(0, FAN_IN_UNREAD)
