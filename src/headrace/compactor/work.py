"""One compaction as a compactor does it: inputs are read from shared storage, the output is put there.

Invariants: the output has the name of the request, or is not there; a job that was stopped leaves no file.
Threads: any; jobs share nothing but connections to storage.
"""

from __future__ import annotations

import threading
from pathlib import Path

from headrace.blob.locations import Locations
from headrace.checkpoint.home import PartitionHome, entry_of
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import QueryError
from headrace.files.fetch import Fetcher
from headrace.files.space import PartialSpace
from headrace.format.manifest import SegmentEntry
from headrace.format.names import leased_through
from headrace.operators.open import kinds_of
from headrace.plan.spec import OperatorSpec
from headrace.store.base.jobs import Compaction, Merge
from headrace.store.merges import MERGES
from headrace.wire.compaction import CompactionRequest

RANGES_BYTES = 256 << 20  # of inputs that are elsewhere, in memory


def _keeps_none(size: int) -> bool:
    """A compactor keeps no copies."""
    return False


class CompactionWork:
    """Compactions of any operator, at any location; `local` is a directory of the process's own."""

    def __init__(self, local: Path, locations: Locations | None = None) -> None:
        self._locations = locations or Locations(local, admits=_keeps_none)
        self._space = PartialSpace(None, RANGES_BYTES, Fetcher())

    def run(self, request: CompactionRequest, stop: threading.Event) -> SegmentEntry | None:
        """The entry of the output; None if no row lives."""
        leased_through(request.output)  # refuses any other name
        blobs = self._locations.open(request.location, create=False)
        home = PartitionHome.of(blobs, request.prefix, SYSTEM_CLOCK, space=self._space)
        merge = merge_of(request)
        inputs = home.open_entries(request.inputs, [merge.kind])
        try:
            job = Compaction.of(inputs, merge, MERGES[merge.name])
            for output in job.run(home, stop) if inputs else ():
                try:
                    home.upload_staged(output, request.output)
                    return entry_of(output)
                finally:
                    home.discard([output])
            return None
        finally:
            for segment in inputs:
                segment.close()


def merge_of(request: CompactionRequest) -> Merge:
    """The merge that a request describes."""
    spec = OperatorSpec.from_json(request.operator)
    kinds = {kind.name: kind for kind in kinds_of(spec, request.store)}
    if request.merge not in MERGES or request.kind not in kinds:
        raise QueryError(
            f"this compactor knows no merge {request.merge!r} of {request.kind!r}",
            hint="run compactors of the release that the application runs",
        )
    return Merge(
        request.merge, spec, kinds[request.kind], request.sections, request.dead_through_us, request.living
    )
