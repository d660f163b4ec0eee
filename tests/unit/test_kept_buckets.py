"""Protects the decisions of stores that keep rows: which windows are due, which buckets share a file, which
files are put together, and that reading ahead changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.plan.spec import Window
from headrace.store.append.buckets import (
    FILE_BYTES,
    Due,
    bucket_of,
    closed_for_good_us,
    crowd,
    due_windows,
    files_of,
)
from headrace.store.append.read_ahead import read_ahead


def test_buckets_are_aligned_with_windows_before_the_epoch_too() -> None:
    window = Window(10, offset_us=3, slide_us=4)
    times = np.array([-8, -1, 0, 2, 3, 6, 7])
    assert bucket_of(times, window, 2).tolist() == [-9, -1, -1, 1, 3, 5, 7]
    assert bucket_of(times, window, 4).tolist() == [-9, -1, -1, -1, 3, 3, 7]
    assert closed_for_good_us(np.array([-9, -1, 3]), window).tolist() == [1, 9, 13]


def test_a_window_is_due_once_and_again_while_it_takes_late_rows() -> None:
    window = Window(10, lateness_us=5)
    assert due_windows([0, 10], [0, 10], window, None, 9) == []
    assert due_windows([0, 10], [0, 10], window, None, 10) == [Due(0, False)]
    assert due_windows([0, 10], [], window, 10, 20) == [Due(10, False)]
    assert due_windows([0, 10], [0], window, 14, 20) == [Due(0, True), Due(10, False)]
    assert due_windows([0, 10], [0], window, 15, 20) == [Due(10, False)]


def test_a_late_row_of_sliding_windows_changes_the_closed_ones_only() -> None:
    window = Window(10, slide_us=5, lateness_us=3)
    assert due_windows([5], [5], window, 11, 11) == [Due(0, True)]
    assert due_windows([5], [5], window, 13, 16) == [Due(5, False)]


@pytest.mark.parametrize(
    ("sizes", "files"),
    [
        ([], []),
        ([1, 1, 1], [[0, 1, 2]]),
        ([FILE_BYTES, 1], [[0], [1]]),
        ([1, FILE_BYTES, 1, 1], [[0], [1], [2, 3]]),
        ([FILE_BYTES // 2] * 5, [[0, 1], [2, 3], [4]]),
    ],
)
def test_large_buckets_have_files_of_their_own(sizes: list[int], files: list[list[int]]) -> None:
    assert [list(range(len(sizes))[part]) for part in files_of(sizes)] == files


def test_only_a_crowd_of_files_is_put_together() -> None:
    assert crowd([]) is None
    assert crowd([0, 0, 0, 10], files_max=3) is None
    assert crowd([0, 0, 0, 0, 10], files_max=3) == slice(1, 4)
    assert crowd([0, 10, 10, 20], files_max=3, all_max=3) == slice(1, 3)
    assert crowd([0, 10, 20, 30], files_max=3, all_max=3) is None


def test_reading_ahead_gives_every_item_and_every_error() -> None:
    assert list(read_ahead(iter(range(5)))) == [0, 1, 2, 3, 4]
    assert next(read_ahead(iter([7, 8]))) == 7

    def fails() -> object:
        yield 1
        raise LookupError("gone")

    ahead = read_ahead(fails())
    assert next(ahead) == 1
    with pytest.raises(LookupError):
        next(ahead)
