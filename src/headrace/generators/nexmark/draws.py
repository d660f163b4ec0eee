"""Counter-based randomness: a draw is a pure function of (seed, event id, draw number).

Each event has its own SplitMix64 sequence. The sequence starts at a *mixed* hash of seed and id, so that
neighbouring events are independent. (Beam seeds `java.util.Random` with the bare id, so its hot phases are
long.) A draw is addressed by number. So no draw depends on an earlier one, and leaving one out changes
nothing else.

Draw numbers: 0 and 1 lateness, from 2 the fields of an entity, from 64 its padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

LATE_TEST, LATE_BY = 0, 1
PADDING_LENGTH, PADDING = 63, 64

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)


def mix(words: U64) -> U64:
    """SplitMix64's finaliser, in place."""
    shifted = np.empty_like(words)
    for shift, multiplier in ((30, _MULTIPLY_1), (27, _MULTIPLY_2)):
        np.right_shift(words, np.uint64(shift), out=shifted)
        words ^= shifted
        words *= multiplier
    np.right_shift(words, np.uint64(31), out=shifted)
    words ^= shifted
    return words


@dataclass(frozen=True)
class Draws:
    """The draws of some events; `keys` holds the start of each event's sequence."""

    keys: U64

    @classmethod
    def of(cls, seed: int, ids: I64) -> Draws:
        start = mix(np.array([seed & _MASK], dtype=np.uint64))
        return cls(mix(ids.astype(np.uint64) * np.uint64(_GAMMA) + start))

    def at(self, rows: I64) -> Draws:
        """The draws of the events at these positions only."""
        return Draws(self.keys[rows])

    def word(self, draw: int) -> U64:
        """Draw number `draw` of every event: 64 random bits."""
        return mix(self.keys + _step(draw))

    def words(self, draw: int, count: int) -> U64:
        """Draws `draw` … `draw + count - 1` of every event, as rows of `count` words."""
        steps = np.array([_step(draw + at) for at in range(count)], dtype=np.uint64)
        return mix(self.keys[:, None] + steps)

    def below(self, draw: int, bound: int | I64) -> I64:
        """A whole number from 0 to `bound - 1`; `bound` is at most 2**32."""
        high = self.word(draw) >> np.uint64(32)
        high *= np.asarray(bound).astype(np.uint64)
        high >>= np.uint64(32)
        return high.view(np.int64)

    def unit(self, draw: int) -> npt.NDArray[np.float64]:
        """A number in [0, 1) with 53 random bits."""
        return (self.word(draw) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def price(self, draw: int) -> I64:
        """`round(100 * 10**(6u))`: log-uniform from 100 to 10**8 cents."""
        word = self.word(draw)
        power = _POWERS[0][_digit(word, 54)] * _POWERS[1][_digit(word, 44)] * _POWERS[2][_digit(word, 34)]
        return np.floor(100.0 * power + 0.5).astype(np.int64)


def _step(draw: int) -> np.uint64:
    return np.uint64((draw + 1) * _GAMMA & _MASK)


def _digit(word: U64, shift: int) -> I64:
    return ((word >> np.uint64(shift)) & np.uint64(1023)).view(np.int64)


def _power_tables() -> tuple[npt.NDArray[np.float64], ...]:
    """`10**(6u)` as a product over three 10-bit digits of u.

    Computed with square roots and products only. IEEE fixes these to the last bit, unlike `exp` and `pow`.
    So a price is the same on every machine.
    """
    tables, root = [], np.float64(10.0**6)
    for _ in range(3):
        table = np.ones(1)
        for _ in range(10):
            root = np.sqrt(root)
            table = np.repeat(table, 2)
            table[1::2] *= root
        tables.append(table)
    return tuple(tables)


_POWERS = _power_tables()
