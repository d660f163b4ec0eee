"""A fetch of kept rows: all rows of its hashes, section by section of the segments that it has read.

Committed segments never change, so rows that were read stay right while their segment is in use. A segment
that came later is not among them, and is read on demand.
Invariants: the hashes of a store's fetches that are alive are distinct, so a row is returned by one fetch.
Threads: as `store.ahead.staged`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from headrace.kernels.sessions.rows import among
from headrace.row.arrays import U64
from headrace.row.run import Run
from headrace.store.ahead.hints import Hints
from headrace.store.ahead.staged import Fetch
from headrace.store.rows.kept_layout import KeptLayout, subset
from headrace.store.segments.reader import Segment

Place = tuple[Segment, int]
PlacesOf = Callable[[Sequence[Segment], Hints, int], Iterable[Place]]


class SectionFetch(Fetch):
    """The rows of some hashes of one side of a join."""

    def __init__(self, places: PlacesOf, slice_us: int, hints: Hints, begun_ms: float) -> None:
        super().__init__(slice_us, hints, begun_ms)
        self._places = places
        self._rows: dict[Place, Run] = {}

    def read(self, segments: Sequence[Segment]) -> None:
        for segment, section in self._places(segments, self.hints, self.slice_us):
            self._rows[segment, section] = segment.rows_of(section, self.hashes)

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(run.nbytes for run in self._rows.values())

    def staged(self, layout: KeptLayout, place: Place, hashes: U64) -> tuple[Run | None, U64]:
        """The rows of ordered hashes in one section, and the hashes that it did not read there."""
        run = self._rows.get(place)
        if run is None:
            return None, hashes
        mine = among(hashes, self.hashes[self.alive])
        wanted = among(run.order, hashes[mine])
        return run if wanted.all() else subset(layout, run, np.flatnonzero(wanted)), hashes[~mine]
