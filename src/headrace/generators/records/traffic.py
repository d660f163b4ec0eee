"""The number of records of each second of event time, as a pure function of the seed.

MiSA's traffic: counts per second are normal around a rate, and their average converges to it. Here the
number of records before second `s` is `rate·s + noise(s)` with a noise of its own for every second. So the
second of any record is computed without counting from the start, and the total never drifts from the rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.errors import QueryError
from headrace.generators.nexmark.draws import I64, Draws

SPREAD_MAX = 0.1  # with noise of at most three sigma on both ends, every second still has records
_SUM = 12  # the sum of this many uniform draws is close to normal, and equal on every machine


@dataclass(frozen=True)
class Traffic:
    """Records over time; `spread` is the standard deviation of a second's count over the rate."""

    rate: int
    spread: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rate < 1:
            raise QueryError(f"rate is {self.rate}", hint="give at least one record per second")
        if not 0.0 <= self.spread <= SPREAD_MAX:
            raise QueryError(f"spread is {self.spread}", hint=f"give a number from 0 to {SPREAD_MAX}")

    def before(self, seconds: I64) -> I64:
        """The number of records before each of these seconds; 0 before second 0."""
        noise = np.clip(_normal(Draws.of(~self.seed, seconds)), -3.0, 3.0)
        # A count is the difference of two noises, so its deviation is √2 times theirs.
        shifted = np.rint(noise * (self.rate * self.spread / np.sqrt(2.0))).astype(np.int64)
        return np.where(seconds <= 0, 0, np.maximum(self.rate * seconds + shifted, 0))

    def seconds_of(self, start: int, stop: int) -> I64:
        """The second of each of the records `start` … `stop - 1`."""
        first = max(0, start // self.rate - 1)
        last = stop // self.rate + 2
        starts = self.before(np.arange(first, last + 1, dtype=np.int64))
        next_second: I64 = np.searchsorted(starts, np.arange(start, stop, dtype=np.int64), "right")
        return first + next_second - 1


def _normal(draws: Draws) -> npt.NDArray[np.float64]:
    total = sum(draws.unit(draw) for draw in range(_SUM)) - _SUM / 2
    return np.asarray(total, dtype=np.float64)
