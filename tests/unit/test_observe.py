"""Protects the choice of a layout from what was observed: when state has grown, and which one fits."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.plan.spec import (
    GROUP,
    TIME,
    WINDOW_END,
    WINDOW_START,
    Grouped,
    Window,
)
from headrace.store.adaptive.observe import Observed, Observer, fit, verdict
from headrace.testing.contracts.store_contract import SECOND, SESSION, SLIDE, TUMBLE, keeping

WHOLE = Window(10 * SECOND, slide_us=2 * SECOND)  # the slide divides the width: a slice is a slide
READ = Observed(
    rows_in=1000,
    rows_read=1000,
    edge_reads=2000,
    groups=100,
    ends=10,
    pieces=100,
    held_bytes=600,
    share_bytes=1000,
)
AGAIN = replace(READ, rows_read=2500)

CASES = [
    ("small", replace(READ, held_bytes=499), TUMBLE, None),
    ("tumbling", READ, TUMBLE, "aar"),
    ("sliding by whole slices", AGAIN, WHOLE, "aar"),
    ("sliding across slices", AGAIN, SLIDE, "range"),
    ("sliding across slices, read about once", READ, SLIDE, "aar"),
    (
        "sliding across slices, in large pieces",
        replace(AGAIN, rows_read=2_500_000, edge_reads=2 * 10**6),
        SLIDE,
        "aar",
    ),
    ("sessions", replace(READ, ends=100), SESSION, "aur"),
    ("nothing read, some room", replace(READ, groups=0, rows_read=0), SLIDE, None),
    ("nothing read, no room", replace(READ, groups=0, rows_read=0, held_bytes=800), SLIDE, "aar"),
    ("no session ended, no room", replace(READ, groups=0, rows_read=0, held_bytes=800), SESSION, "aur"),
]


@pytest.mark.parametrize(
    ("observed", "window", "store"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_layout_follows_the_accesses(observed: Observed, window: Window, store: str | None) -> None:
    choice = fit(observed, window)
    assert (choice and choice.store) == store
    assert choice is None or choice.reason


def test_alignment_tells_sessions_from_windows() -> None:
    assert replace(READ, groups=100, ends=1).aligned == pytest.approx(0.99)
    assert replace(READ, groups=100, ends=100).aligned == 0


def results(*windows: tuple[int, int]) -> pa.RecordBatch:
    starts, ends = zip(*windows, strict=True)
    return pa.RecordBatch.from_pydict({WINDOW_START: list(starts), WINDOW_END: list(ends)})


def test_reads_are_counted_by_epoch() -> None:
    observer = Observer(keeping(SESSION))
    observer.took(30)
    observer.read(results((0, 10), (0, 10), (5, 15)))
    observer.read(results((0, 10)))
    observer.read(results((0, 10)).slice(0, 0))
    observer.epoch_over([])
    observer.read(results((0, 10)))
    observer.epoch_over([])
    counts = observer.observed(7, 9)
    assert counts == Observed(
        rows_in=30, rows_read=5, edge_reads=10, groups=5, ends=3, held_bytes=7, share_bytes=9
    )


def test_first_and_last_reads_are_told_from_those_between() -> None:
    """Windows of 10 s every 4 s: the last 4 s were in none before, the first 4 s will be in none after."""
    observer = Observer(replace(keeping(SLIDE), work=Grouped()))
    times = [s * SECOND for s in (0, 5, 6, 9)]
    bounds = {WINDOW_START: [0] * 4, WINDOW_END: [10 * SECOND] * 4}
    observer.read(pa.RecordBatch.from_pydict({**bounds, GROUP: [0, 0, 1, 1], TIME: times}))
    counts = observer.observed(0, 1)
    assert (counts.rows_read, counts.edge_reads, counts.groups) == (4, 3, 2)


def test_a_verdict_has_its_counts() -> None:
    chosen = fit(AGAIN, SLIDE)
    assert chosen is not None
    text = verdict(chosen.store, chosen.reason, AGAIN)
    assert text == (
        "range: a row is read 2.5 times, in pieces of 25 rows; "
        "counted: 1,000 rows in, 2,500 read in 100 groups, 100 pieces"
    )
    assert "memory: 60% of its share of memory, so it may stay" in verdict("memory", "", READ)
