"""Protects the figure of `bench migration`: batches of the move count, later ones only in the median."""

from __future__ import annotations

from headrace.bench.migration import Moved


def test_the_largest_batch_up_to_the_one_after_the_move_counts() -> None:
    stores = ("memory", "memory", "memory, range", "range", "range", "range", "range")
    moved = Moved(stores, (100.0, 110.0, 150.0, 120.0, 180.0, 100.0, 900.0))
    assert moved.last == 4
    assert moved.ratio == 180.0 / 120.0


def test_a_move_in_the_last_batch_counts() -> None:
    moved = Moved(("memory", "memory", "range"), (100.0, 100.0, 300.0))
    assert (moved.last, moved.ratio) == (2, 3.0)
