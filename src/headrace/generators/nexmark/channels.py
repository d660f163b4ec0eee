"""Bid channels and their pages: 10,000 ordinary channels and four hot ones, fixed by the seed.

As in Flink's generator a channel always has the same URL, so a bid only picks a row of this table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.generators.nexmark.draws import I64, Draws
from headrace.generators.nexmark.text import text

HOT = ("Google", "Facebook", "Baidu", "Apple")
ORDINARY = 10_000

_DOMAIN = 0x6368616E6E656C73
"""Keeps the table's draws apart from those of the events with the same ids."""

_HAS_ID, _LENGTHS, _LETTERS = 0, 2, 5


@dataclass(frozen=True)
class Channels:
    """Ordinary channels first, then the hot ones; `names` and `urls` are parallel."""

    names: pa.Array
    urls: pa.Array

    @classmethod
    def of(cls, seed: int) -> Channels:
        numbers = np.arange(ORDINARY + len(HOT), dtype=np.int64)
        draws = Draws.of(seed ^ _DOMAIN, numbers)
        ordinary = pc.binary_join_element_wise("channel-", _digits(numbers[:ORDINARY]), "")
        names = pa.concat_arrays([ordinary, pa.array(HOT)])
        has_id = (numbers < ORDINARY) & (draws.below(_HAS_ID, 10) > 0)
        return cls(names, pc.binary_join_element_wise(_pages(draws), _suffixes(numbers, has_id), ""))


def _pages(draws: Draws) -> pa.Array:
    folders = [text(draws, _LENGTHS + at, _LETTERS + at, 5, underscore=True) for at in range(3)]
    return pc.binary_join_element_wise("https://www.nexmark.com", *folders, "item.htm?query=1", "/")


def _suffixes(numbers: I64, has_id: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Array:
    suffixes = pc.binary_join_element_wise("&channel_id=", _digits(np.abs(_reversed_bits(numbers))), "")
    return pc.if_else(pa.array(has_id), suffixes, "")


def _reversed_bits(numbers: I64) -> I64:
    """The low 32 bits in reverse order, read as a signed number (Java's `Integer.reverse`)."""
    bits = np.unpackbits(numbers.astype(">u4").view(np.uint8).reshape(-1, 4), axis=1)
    flipped = np.packbits(bits[:, ::-1], axis=1)
    return np.ascontiguousarray(flipped).view(">i4").ravel().astype(np.int64)


def _digits(numbers: I64) -> pa.Array:
    return pa.array(numbers).cast(pa.string())
