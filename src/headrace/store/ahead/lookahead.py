"""Reading ahead as a store uses it: off until it gets threads, and then consulted before the segments.

Threads: the partition's own; the reads run in the threads given. `use(None)` may come from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor

import numpy as np

from headrace.row.arrays import U64, Flags
from headrace.store.ahead.manager import MakeFetch, PrefetchManager
from headrace.store.ahead.staged import Fetch, Layout
from headrace.store.base.ahead_counts import AheadCounts
from headrace.store.base.share import Share
from headrace.store.segments.reader import Answer, Segment


class Lookahead:
    """The read-ahead of one store. While it is off, it does not reference the store."""

    def __init__(self, layout: Layout, share: Share) -> None:
        self._layout, self._share = layout, share
        self._ahead: PrefetchManager | None = None
        self.counts = AheadCounts()

    def use(
        self,
        threads: Executor | None,
        stored: Callable[[], Sequence[Segment]],
        fetch: MakeFetch = Fetch,
    ) -> None:
        """Begins with these threads; None ends it. `stored` returns all flushed rows, newest first."""
        if threads is None and self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        elif threads is not None and self._ahead is None:
            place = (self._layout, stored, threads, self._share, self.counts)
            self._ahead = PrefetchManager(*place, fetch=fetch)

    @property
    def is_on(self) -> bool:
        return self._ahead is not None

    @property
    def nbytes(self) -> int:
        ahead = self._ahead
        return 0 if ahead is None else ahead.nbytes

    def hint(self, slice_us: int, hashes: U64, resident: Flags, time: int) -> None:
        """Ordered, distinct hashes will be used at a time; of those in memory nothing is read."""
        ahead = self._ahead
        if ahead is not None:
            ahead.resident(int(resident.sum()))
            if not resident.all():
                ahead.hint(slice_us, hashes[~resident], time)

    def late(self, hints: int) -> None:
        """Hints for closed windows came in."""
        ahead = self._ahead
        if ahead is not None and hints:
            ahead.late(hints)

    def answer(self, slice_us: int, answer: Answer) -> Flags:
        """Adds staged rows; returns the probes that have their answer, present or absent."""
        ahead = self._ahead
        return np.zeros(len(answer.probe), np.bool_) if ahead is None else ahead.answer(slice_us, answer)

    def staged(self, slice_us: int, hashes: U64) -> list[Fetch]:
        """The fetches that have read rows of the hashes."""
        ahead = self._ahead
        return [] if ahead is None else ahead.staged(slice_us, hashes)

    def flushed(self, dirty: Callable[[], Iterable[tuple[int, U64]]]) -> None:
        """Rows were flushed and can be read: what was staged of their hashes is outdated."""
        ahead = self._ahead
        if ahead is not None and not ahead.is_idle:
            for slice_us, hashes in dirty():
                ahead.forget(slice_us, hashes)

    def settled(self, is_open: Callable[[int], bool]) -> None:
        """A batch was committed."""
        ahead = self._ahead
        if ahead is not None:
            ahead.settled(is_open)

    def drop(self) -> None:
        """Frees the memory of staged rows and hints."""
        ahead = self._ahead
        if ahead is not None:
            ahead.drop()
