"""Makes staged rows a version: merges them by partition, and publishes manifests as a commit does.

Nothing of it counts before `edit.commit` adds the batch to Spark's logs: no reader and no host looks at a
version that is not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headrace.blob.base import Blobs
from headrace.blob.cached import download
from headrace.checkpoint.epoch_files import PublishedFiles
from headrace.checkpoint.home import PartitionHome
from headrace.clock import SystemClock
from headrace.edit.plan import WritePlan
from headrace.edit.rows import RowMaker
from headrace.edit.shards import Shard, twice
from headrace.format.manifest import Manifest
from headrace.operators.open import kinds_of
from headrace.plan.choice import adds
from headrace.row.chunks import READ_ROWS
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.append.merge import by_range
from headrace.store.fold.panes import summed
from headrace.store.rows.slices import is_closed
from headrace.store.segments.merge import Source, merge
from headrace.store.segments.reader import Segment, lookup_all
from headrace.wire.contract import Ticket

UNNAMED = 0  # the run of files that have no name yet
Runs = Callable[[Sequence[Segment], int], Iterator[Run]]


@dataclass(frozen=True)
class MergedPartition:
    """A partition whose rows are merged into one staged file; `publish` or `discard` it."""

    plan: WritePlan
    home: PartitionHome
    files: PublishedFiles
    store: str
    base: Manifest | None
    kept: Sequence[Segment]
    new: Segment | None
    rows: int

    def publish(self, run: int) -> Manifest:
        """Name the file and publish the version that has it."""
        base, home = self.base, self.home
        self.files.run = run
        self.files.keep(lambda segment: segment is self.new)
        manifest = home.manifest(
            ticket=self.files.ticket,
            run=run,
            base=base,
            segments=[*self.kept, *([] if self.new is None else [self.new])],
            closed_through_us=None if base is None else base.closed_through_us,
            frontiers_ms=(None,) * len(self.plan.spec.delays_ms) if base is None else base.frontiers_ms,
            late_rows=0,
            keys=self.rows,
            store=self.store,
        )
        home.publisher.publish(manifest, base)
        return manifest

    def discard(self) -> None:
        """Remove the staged file, where it is not published."""
        self.files.discard()


@dataclass(frozen=True)
class PartitionWrite:
    """The new version of one partition."""

    plan: WritePlan
    maker: RowMaker
    blobs: Blobs
    partition: int

    def merge(self, shards: Sequence[Shard]) -> MergedPartition:
        """The shards merged into one staged file; raises where a key has two rows."""
        base, home = self.plan.bases[self.partition], self._home()
        staged = [self._opened(home, shard) for shard in shards]
        kept = [] if base is None or self.plan.overwrite else self._base_segments(home, base)
        files = PublishedFiles(home, self._ticket(base), UNNAMED)
        try:
            new, rows = self._merged(files, staged, kept)
        except BaseException:
            files.discard()
            raise
        stays = [] if adds(self.plan.spec) else kept
        return MergedPartition(self.plan, home, files, self.maker.store, base, stays, new, rows)

    def _home(self) -> PartitionHome:
        prefix = self._ticket(self.plan.bases[self.partition]).prefix
        return PartitionHome.of(self.blobs, prefix, SystemClock())

    def _ticket(self, base: Manifest | None) -> Ticket:
        plan = self.plan
        version = None if base is None else base.version
        place = (plan.write_id, plan.query, plan.spec, self.partition)
        return Ticket(*place, plan.version, version, 0, plan.location, 0, by_range=plan.by_range)

    def _opened(self, home: PartitionHome, shard: Shard) -> Segment:
        path = self.blobs.local_path(shard.name)
        if path is None:
            path = self.blobs.staging(shard.name)
            download(self.blobs, shard.name, path)
        return home.open_segment(home.files.stage(path), self.maker.kind)

    def _base_segments(self, home: PartitionHome, base: Manifest) -> list[Segment]:
        return home.open_segments(base, kinds_of(self.plan.spec, base.store))

    def _merged(
        self, files: PublishedFiles, staged: Sequence[Segment], kept: Sequence[Segment]
    ) -> tuple[Segment | None, int]:
        """One segment of all new rows, and how many rows the version has; None where there is none."""
        new = self._written(files, staged, self._runs)
        if new is not None and not self.maker.kind.appends and new.rows < _rows(staged):
            raise twice(self.plan)
        if adds(self.plan.spec) and kept:
            return self._rewritten(files, new, kept)
        before = self._keys_before(kept)
        if new is None:
            return None, before
        return new, before + new.rows - self._replaced(new, kept)

    def _keys_before(self, kept: Sequence[Segment]) -> int:
        base = self.plan.bases[self.partition]
        return base.keys if base is not None and kept else 0

    def _replaced(self, new: Segment, kept: Sequence[Segment]) -> int:
        """How many of the new rows replace a row of the version before."""
        if self.maker.kind.appends or not kept:
            return 0
        older, width = kept[::-1], self.maker.kind.shape.key_width
        return sum(
            int(lookup_all(older, number, Run(run.order, run.words[:, :width].copy(), run.heap)).mask.sum())
            for number in new.sections
            for run in new.scan(number, READ_ROWS)
        )

    def _rewritten(
        self, files: PublishedFiles, new: Segment | None, kept: Sequence[Segment]
    ) -> tuple[Segment | None, int]:
        """State that epochs add to is written anew: its sums, with the new rows in place of theirs."""
        sums = self._written(files, kept, self._sums)
        both = self._written(files, [part for part in (new, sums) if part is not None], self._runs)
        return both, 0 if both is None else both.rows

    def _written(self, files: PublishedFiles, segments: Sequence[Segment], runs: Runs) -> Segment | None:
        """The live sections of segments as one staged segment; None where they have no row."""
        numbers = sorted({number for segment in segments for number in segment.sections})
        closed = self.plan.closed_through_us
        live = [number for number in numbers if not is_closed(number, self.plan.spec.window, closed)]
        if not live:
            return None
        written = files.write(self.maker.kind, [(number, runs(segments, number)) for number in live])
        return written if written.rows else None

    def _runs(self, segments: Sequence[Segment], number: int) -> Iterator[Run]:
        """The rows of a section; where a key has one row, that of the first segment counts."""
        sources: list[Source] = [(segment, number) for segment in segments if number in segment.sections]
        if self.maker.kind.appends:
            return by_range(sources, self.maker.kind.shape, READ_ROWS)
        return merge(sources, self.maker.kind.shape, READ_ROWS)

    def _sums(self, segments: Sequence[Segment], number: int) -> Iterator[Run]:
        sources: list[Source] = [(s, number) for s in reversed(segments) if number in s.sections]
        return summed(RowLayout(self.plan.spec), sources, READ_ROWS)


def _rows(segments: Sequence[Segment]) -> int:
    return sum(segment.rows for segment in segments)
