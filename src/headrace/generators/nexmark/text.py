"""Random strings as byte matrices, turned into Arrow arrays without a Python string.

A 16-bit slice of a random word picks two characters at once from a table. The tables are inverse
distribution functions, so each character has its probability to within 1 in 65,536.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.generators.nexmark.draws import I64, PADDING, PADDING_LENGTH, U64, Draws

MIN_LENGTH = 3

_TAKE_ROWS = 2048

_Pairs = npt.NDArray[np.uint16]


def _pair_table(symbols: bytes) -> _Pairs:
    """All 2**16 pairs of equally likely `symbols`; a symbol may be listed more than once."""
    count = len(symbols)
    cells = np.arange(1 << 16, dtype=np.int64) * (count * count) >> 16
    letters = np.frombuffer(symbols, dtype=np.uint8)
    pairs = np.stack([letters[cells // count], letters[cells % count]], axis=1)
    return np.ascontiguousarray(pairs).view(np.uint16).ravel()


_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_LOWER = _pair_table(_LETTERS)
_SPACED = _pair_table(b" " * 26 + _LETTERS * 12)
_SCORED = _pair_table(b"_" * 26 + _LETTERS * 12)


def strings(offsets: npt.NDArray[np.int32], data: pa.Buffer | None) -> pa.Array:
    """A string array over existing buffers."""
    filled = pa.py_buffer(b"") if data is None else data
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), filled)


def offsets_of(lengths: I64) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def text(
    draws: Draws, length_draw: int, letters_draw: int, longest: int, *, underscore: bool = False
) -> pa.Array:
    """Beam's `nextString(longest)`: 3 to `longest - 1` characters, 1 in 13 special, spaces trimmed."""
    lengths = MIN_LENGTH + draws.below(length_draw, longest - MIN_LENGTH)
    table = _SCORED if underscore else _SPACED
    return pc.ascii_trim(_random(draws, letters_draw, lengths, longest - 1, table), " ")


def padding(draws: Draws, current: int | I64, average: int) -> pa.Array:
    """Beam's `nextExtra`: lower-case letters that bring a row to about `average` bytes."""
    absent = np.broadcast_to(np.maximum(average - np.asarray(current, dtype=np.int64), 0), draws.keys.shape)
    spread = (2 * absent + 5) // 10
    lengths = absent - spread + draws.below(PADDING_LENGTH, 2 * spread)
    return _random(draws, PADDING, lengths, int(lengths.max(initial=0)), _LOWER)


def empty(count: int) -> pa.Array:
    """`count` empty strings."""
    return strings(np.zeros(count + 1, dtype=np.int32), None)


def _random(draws: Draws, draw: int, lengths: I64, longest: int, table: _Pairs) -> pa.Array:
    matrix = _letters(draws.words(draw, (longest + 7) // 8), table)
    places = np.arange(matrix.shape[1], dtype=np.uint16)
    inside = places < lengths.astype(np.uint16)[:, None]
    return strings(offsets_of(lengths), pa.py_buffer(matrix[inside]))


def _letters(words: U64, table: _Pairs) -> npt.NDArray[np.uint8]:
    """Eight characters per word. Works in blocks, because `take` widens its indices and would exceed the
    cache.
    """
    slots = words.view(np.uint16)
    pairs = np.empty_like(slots)
    for at in range(0, len(slots), _TAKE_ROWS):
        np.take(table, slots[at : at + _TAKE_ROWS], out=pairs[at : at + _TAKE_ROWS], mode="clip")
    return pairs.view(np.uint8)
