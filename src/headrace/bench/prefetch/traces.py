"""Keys of batches as the queries' state sees them: hot ones that change, and cold ones over all of it.

q18   pairs of auction and bidder: half of the rows of a hot auction, three quarters of a hot bidder
q20   auctions: half of the rows of a hot one
zipf  keys of a skewed distribution
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from headrace.row.arrays import I64

HOT_KEYS = 500  # in use at a time
_DRIFT = 50  # hot keys that change with every batch


@dataclass(frozen=True)
class Trace:
    """Rows of each batch; `hot` is the part with hot keys, `skew` the exponent of the others."""

    name: str
    keys: int
    rows: int
    batches: int
    hot: float
    skew: float = 0.0
    seed: int = 18

    def batch_keys(self) -> Iterator[I64]:
        """The keys of each batch."""
        random = np.random.default_rng(self.seed)
        weights = None if not self.skew else 1 / np.arange(1, self.keys + 1) ** self.skew
        chances = None if weights is None else weights / weights.sum()
        for number in range(self.batches):
            cold = random.choice(self.keys, self.rows, p=chances)
            hot = (number * _DRIFT + random.integers(0, HOT_KEYS, self.rows)) * 7919 % self.keys
            yield np.where(random.random(self.rows) < self.hot, hot, cold)

    def sized(self, **changes: int) -> Trace:
        return replace(self, **changes)  # type: ignore[arg-type]


def traces(keys: int, rows: int, batches: int) -> list[Trace]:
    """The traces of the queries."""
    return [
        Trace("q18", keys, rows, batches, hot=0.375),
        Trace("q20", keys, rows, batches, hot=0.5),
        Trace("zipf", keys, rows, batches, hot=0.0, skew=0.8),
    ]
