"""Protects rows on their way into a key-value store and back: keys sort by section and order key, different
keys stay different, and values give back the very rows."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernels.segments.entries import (
    FLUSH_WORD,
    HEADER_WORDS,
    pack_keys,
    pack_values,
    unpack_values,
)
from headrace.row.layout import LENGTH_BITS, LENGTH_MAX
from headrace.row.run import Run

BIAS = 1 << 63
VARIABLE = np.array([1], np.int64)  # of two words the second points at bytes

Plain = tuple[int, int, bytes]  # order key, a number, bytes
rows_strategy = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 255, 256, 1 << 40, (1 << 64) - 1]),
        st.sampled_from([0, 1, 256, (1 << 64) - 1]),
        st.binary(max_size=12),
    ),
    max_size=20,
)


def run_of(rows: list[Plain]) -> Run:
    heap = b"".join(row[2] for row in rows)
    at, words = 0, np.zeros((len(rows), 2), np.uint64)
    for index, (_, number, data) in enumerate(rows):
        words[index] = number, (at << LENGTH_BITS | len(data)) if data else 0
        at += len(data)
    hashes = np.array([row[0] for row in rows], np.uint64)
    return Run(hashes, words, np.frombuffer(heap, np.uint8))


def rows_in(hashes: np.ndarray, words: np.ndarray, heap: np.ndarray) -> list[Plain]:
    rows = []
    for order, (number, pointer) in zip(hashes.tolist(), words.tolist(), strict=True):
        start, size = pointer >> LENGTH_BITS, pointer & LENGTH_MAX
        rows.append((order, number, heap[start : start + size].tobytes()))
    return rows


@settings(max_examples=60, deadline=None)
@given(rows=rows_strategy, section=st.integers(-(1 << 62), 1 << 62))
def test_keys_sort_by_section_and_order_key_and_tell_keys_apart(rows: list[Plain], section: int) -> None:
    run = run_of(rows)
    flags = np.array([False, True])
    place = np.uint64(section + BIAS)
    offsets, data = pack_keys(7, place, run.order, run.words, run.heap, flags)
    keys = [data[a:b].tobytes() for a, b in itertools.pairwise(offsets)]
    for row, key in zip(rows, keys, strict=True):
        assert key[:17] == bytes([7]) + (section + BIAS).to_bytes(8, "big") + row[0].to_bytes(8, "big")
    assert len(set(keys)) == len(set(rows))


@settings(max_examples=60, deadline=None)
@given(rows=rows_strategy)
def test_values_give_back_the_rows_of_each_order_key(rows: list[Plain]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    run = run_of(rows)
    changes = np.flatnonzero(np.diff(run.order)) + 1
    starts = np.concatenate([[0], changes, [len(rows)]]).astype(np.int64) if rows else np.zeros(1, np.int64)
    offsets, data = pack_values(run.order, run.words, run.heap, VARIABLE, starts, np.uint64(5))
    hashes, words, heap = unpack_values(data, offsets, 2, VARIABLE)
    assert rows_in(hashes, words, heap) == rows
    assert set(data[offsets[:-1] + FLUSH_WORD].tolist()) <= {5}
    assert len(data) >= HEADER_WORDS * (len(starts) - 1)
