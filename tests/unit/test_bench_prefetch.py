"""Protects the benchmark of prefetching: all sides replay the same rows, and hints are what differs."""

from __future__ import annotations

import numpy as np

from headrace.bench.prefetch.replay import LRU, PREFETCH, Side, replay
from headrace.bench.prefetch.traces import Trace, traces

SMALL = Trace("small", 20_000, 1_000, 2, hot=0.3)


def test_hints_answer_before_the_segments_do() -> None:
    # The slack is long: on a busy machine hints must still be read before the rows come.
    plain = replay(SMALL, Side("lru", "lru", slack_ms=0.0), 400_000)
    ahead = replay(SMALL, Side("prefetch", "timestamp", "stage", slack_ms=1000.0), 400_000)
    assert plain.reads.hits == plain.reads.hints == 0
    assert plain.reads.looked_up > 500
    assert ahead.reads.hits > 0.5 * ahead.reads.looked_up
    assert ahead.keys_read <= 1.1 * plain.keys_read


def test_a_trace_is_the_same_for_every_side() -> None:
    for trace in traces(5_000, 300, 3):
        first, again = list(trace.batch_keys()), list(trace.batch_keys())
        assert len(first) == 3
        assert all((one == other).all() for one, other in zip(first, again, strict=True))
        assert max(keys.max() for keys in first) < 5_000
        assert len(np.unique(np.concatenate(first))) > 100
    assert (LRU.lookahead, PREFETCH.lookahead) == ("", "stage")
