"""Rows as plain Python values, and the runs that hold them: the model that segments are compared with.

A key is `(number or None, text or None)`, a value `(number, text)`. The row has six words:
key nulls · number · text · flags · number · text.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from headrace.row.run import Run

Key = tuple[int | None, bytes | None]
Value = tuple[int, bytes]
Rows = Mapping[Key, Value]


@dataclass(frozen=True)
class RowShape:
    """The part of `RowLayout` that merges need."""

    width: int = 6
    key_width: int = 3
    variable_words: tuple[int, ...] = (2, 5)
    variable_key_words: tuple[int, ...] = (2,)


SHAPE = RowShape()

texts = st.one_of(st.sampled_from([b"", b"a", b"b", b"ab"]), st.binary(max_size=40))
keys = st.tuples(st.one_of(st.none(), st.integers(-3, 3)), st.one_of(st.none(), texts))
values = st.tuples(st.integers(-(2**63), 2**63 - 1), texts)
tables = st.dictionaries(keys, values, max_size=40)
# How many different hashes there are: one puts all keys into one block, few make many collisions.
spreads = st.sampled_from([1, 2, 7, 1 << 64])


def hash_of(key: Key, spread: int) -> int:
    raw = repr(key).encode()
    whole = zlib.crc32(raw) << 32 | zlib.crc32(raw[::-1])
    return whole if spread == 1 << 64 else whole % spread * ((1 << 64) - 1) // max(spread - 1, 1)


class _Heap:
    """Bytes behind variable words; starts with rubbish so that no offset is right by accident."""

    def __init__(self) -> None:
        self.data = bytearray(b"rubbish")

    def add(self, text: bytes | None) -> int:
        if text is None:
            return 0
        self.data += text
        return (len(self.data) - len(text)) << 24 | len(text)


def run_of(rows: Rows, spread: int = 1 << 64) -> Run:
    """The rows as an ordered run."""
    heap, packed = _Heap(), []
    for key in sorted(rows, key=lambda key: hash_of(key, spread)):
        value = rows[key]
        packed.append([*_key_words(key, heap), 1, value[0] % 2**64, heap.add(value[1])])
    return _run([hash_of(key, spread) for key in rows], packed, SHAPE.width, heap)


def probe_of(wanted: Iterable[Key], spread: int = 1 << 64) -> tuple[list[Key], Run]:
    """The keys in hash order, and the ordered probe for them."""
    ordered = sorted(wanted, key=lambda key: hash_of(key, spread))
    heap = _Heap()
    packed = [_key_words(key, heap) for key in ordered]
    return ordered, _run([hash_of(key, spread) for key in ordered], packed, SHAPE.key_width, heap)


def rows_of(run: Run) -> list[tuple[Key, Value]]:
    return [_row(words, run.heap) for words in run.words]


def table_of(runs: Iterable[Run]) -> dict[Key, Value]:
    """All rows of ordered runs, which must be ordered over their borders and distinct."""
    table: dict[Key, Value] = {}
    last = -1
    for run in runs:
        hashes = [int(hashed) for hashed in run.order]
        assert hashes == sorted(hashes)
        assert not hashes or hashes[0] > last
        last = hashes[-1] if hashes else last
        for key, value in rows_of(run):
            assert key not in table
            table[key] = value
    return table


def _key_words(key: Key, heap: _Heap) -> list[int]:
    number, text = key
    nulls = (number is None) | (text is None) << 1
    return [nulls, (number or 0) % 2**64, heap.add(text)]


def _run(hashes: list[int], packed: list[list[int]], width: int, heap: _Heap) -> Run:
    words = np.array(packed, np.uint64).reshape(len(packed), width)
    return Run(np.array(sorted(hashes), np.uint64), words, np.frombuffer(bytes(heap.data), np.uint8))


def _row(words: np.ndarray, heap: np.ndarray) -> tuple[Key, Value]:
    nulls, number, text, flags, value, note = (int(word) for word in words)
    assert flags == 1
    key = (None if nulls & 1 else _signed(number), None if nulls & 2 else _text(text, heap))
    return key, (_signed(value), _text(note, heap))


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _text(word: int, heap: np.ndarray) -> bytes:
    start, length = word >> 24, word & 0xFFFFFF
    return heap[start : start + length].tobytes()
