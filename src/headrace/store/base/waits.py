"""How long rows wait for state that is not in memory, and what is read for them.

Threads: the partition's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from math import ceil, log2

from headrace.clock import SYSTEM_CLOCK

_STEPS = 4  # buckets per doubling, so that a quantile is right within a fifth
_LEAST_MS = 0.001
_NOT_SUMS = ("now_ms", "rows")


@dataclass
class StateWaits:
    """Sums since a store was opened."""

    now_ms: Callable[[], float] = field(default=SYSTEM_CLOCK.monotonic_ms, repr=False)
    wait_ms: float = 0.0  # in which a fold waited for state
    keys: int = 0  # that memory did not have and segments may have
    hits: int = 0  # of these, keys that were read ahead
    blocks: int = 0  # reads on demand
    bytes: int = 0  # of these reads
    spill_ms: float = 0.0  # in which a fold waited for changed rows to leave memory
    rows: WaitHistogram | None = None  # of stores that match rows one after another, and not as they come

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time of the block as a wait."""
        begun = self.now_ms()
        try:
            yield
        finally:
            self.wait_ms += self.now_ms() - begun

    def counts(self) -> dict[str, float]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _NOT_SUMS}


class WaitHistogram:
    """Rows by the time that they waited: four buckets per doubling, from a microsecond on."""

    def __init__(self, rows: Mapping[int, int] | None = None) -> None:
        self.rows: dict[int, int] = dict(rows or {})

    def add(self, rows: int, wait_ms: float) -> None:
        """Counts rows that waited; bucket 0 has those that did not."""
        bucket = bucket_of(wait_ms)
        self.rows[bucket] = self.rows.get(bucket, 0) + rows

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Buckets and their rows, as JSON can hold them."""
        return tuple(sorted(self.rows.items()))


def bucket_of(wait_ms: float) -> int:
    """The bucket of a wait: its upper bound is the first that is not below the wait."""
    return 0 if wait_ms <= _LEAST_MS else ceil(_STEPS * log2(wait_ms / _LEAST_MS))


def bound_ms(bucket: int) -> float:
    """The longest wait of a bucket; the first one has no wait."""
    return 0.0 if bucket == 0 else _LEAST_MS * 2 ** (bucket / _STEPS)


def merged(histograms: Sequence[Sequence[Sequence[int]]]) -> tuple[tuple[int, int], ...]:
    """The sum of histograms that are given as pairs."""
    whole = WaitHistogram()
    for bucket, rows in (pair for histogram in histograms for pair in histogram):
        whole.rows[bucket] = whole.rows.get(bucket, 0) + rows
    return whole.pairs()


def quantile_ms(pairs: Sequence[Sequence[int]], quantile: float) -> float:
    """The wait that this part of the rows does not exceed; 0 without rows."""
    left = ceil(quantile * sum(rows for _, rows in pairs))
    for bucket, rows in sorted((bucket, rows) for bucket, rows in pairs):
        left -= rows
        if left <= 0:
            return bound_ms(bucket)
    return 0.0
