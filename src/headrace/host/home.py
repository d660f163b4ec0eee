"""Where one partition lives on storage: writing its segments and manifests, opening them again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.publish import ManifestPublisher
from headrace.errors import StateMissing, StateUnsupported, TryAgain
from headrace.format.manifest import Manifest, SegmentEntry
from headrace.format.names import SEQUENCES, segment_name
from headrace.host.contract import Ticket
from headrace.ids import new_write_id, spec_digest
from headrace.store.contract import FileKind, Sections
from headrace.store.open import kinds_of
from headrace.store.seal import write_segment
from headrace.store.segment import Segment
from headrace.store.sst import SST, SstFile, checksum


@dataclass(frozen=True)
class PartitionHome:
    """The partition's folder: `<query>/<operator>/p<partition>`."""

    blobs: Blobs
    prefix: str
    publisher: ManifestPublisher
    sequence: itertools.count[int]
    log: LocalLog | None = None  # where files are before they are on storage

    def path_of(self, name: str) -> Path:
        if self.log is not None and (local := self.log.file(name)).exists():
            return local
        path = self.blobs.local_path(f"{self.prefix}/{name}")
        if path is None:
            raise StateMissing(
                f"{self.blobs.root} has no files that can be read in place",
                hint="set spark.headrace.state.location to a directory on a file system, or to s3://…",
            )
        return path

    def new_segment(self, ticket: Ticket, run: int) -> str:
        """A name that no other attempt has or will have.

        The sequence goes round: it tells apart the few segments of one attempt, and a host lives long.
        """
        return segment_name(ticket.batch, run, ticket.attempt, next(self.sequence) % SEQUENCES)

    def open_segment(self, path: Path, kind: FileKind, checksum: int | None = None) -> Segment:
        shape = kind.shape
        return Segment.open(path, shape.width, shape.variable_key_words, checksum=checksum, kind=kind.name)

    def stage(self) -> Path:
        """Where a compaction may write before a commit gives its file a name."""
        if self.log is not None and self.log.is_open:
            return self.log.staging()
        return self.blobs.staging(f"{self.prefix}/segments/compaction")

    def adopt(self, segment: Segment, ticket: Ticket, run: int) -> None:
        """Give a staged segment a name of the version being committed."""
        name = self.new_segment(ticket, run)
        self.place(name, Path(segment.path))
        segment.path = str(self.path_of(name))

    def place(self, name: str, staged: Path) -> None:
        """Move a finished file to storage; where that fails it leaves nothing behind."""
        try:
            self.publisher.place_segment(name, staged)
        except BaseException:
            # The next attempt writes anew, and while this process lives nobody sweeps its files: on a full
            # disk every failure would make the next more likely.
            staged.unlink(missing_ok=True)
            raise

    def open_segments(self, manifest: Manifest, kinds: Sequence[FileKind]) -> list[Segment]:
        by_name = {kind.name: kind for kind in kinds}
        return [self._open(entry, by_name) for entry in manifest.segments]

    def _open(self, entry: SegmentEntry, kinds: Mapping[str, FileKind]) -> Segment:
        path = self.path_of(entry.name)
        if entry.kind == SST:
            return SstFile(str(path), entry.label, entry.size, entry.crc)
        if entry.kind not in kinds:
            raise StateUnsupported(
                f"{entry.name} holds {entry.kind!r}, and the operator reads {', '.join(kinds)}",
                hint="another release wrote it: go on with that one, or start from a new checkpoint",
            )
        try:
            return self.open_segment(path, kinds[entry.kind], entry.crc)
        except StateMissing:  # another host of this machine may just have brought it to storage
            moved = self.path_of(entry.name)
            if moved == path:
                raise
            return self.open_segment(moved, kinds[entry.kind], entry.crc)

    def manifest(
        self,
        *,
        ticket: Ticket,
        run: int,
        base: Manifest | None,
        segments: Sequence[Segment],
        closed_through_us: int | None,
        frontiers_ms: Sequence[int | None],
        late_rows: int,
        keys: int,
        store: str = "",
    ) -> Manifest:
        """The manifest that makes `segments` the version of the ticket's batch."""
        return Manifest(
            write_id=new_write_id(),
            version=ticket.batch,
            parent_write_id=None if base is None else base.write_id,
            parent_version=None if base is None else base.version,
            run=run,
            attempt=ticket.attempt,
            operator_digest=spec_digest(ticket.operator),
            partition=ticket.partition,
            segments=tuple(entry_of(segment) for segment in segments),
            closed_through_us=closed_through_us,
            frontiers_ms=tuple(frontiers_ms),
            late_rows_total=late_rows + (0 if base is None else base.late_rows_total),
            keys=keys,
            width=kinds_of(ticket.operator, store)[0].shape.width,
            store=store,
        )


@dataclass
class Sealer:
    """Writes the files of one ticket's epoch (`PlacingSeal`).

    A segment is not on storage before `name`: much of what an epoch spills is read and done with before it
    ends, and then need not be synced or copied anywhere.
    Threads: one at a time.
    """

    home: PartitionHome
    ticket: Ticket
    run: int
    nbytes: int = 0  # of all segments
    _unnamed: list[Segment] = field(default_factory=list)

    def __call__(self, kind: FileKind, sections: Sections) -> Segment:
        home, shape = self.home, kind.shape
        staged = home.blobs.staging(f"{home.prefix}/segments/epoch")
        try:
            write_segment(staged, shape.width, sections, shape.variable_words, sync=False)
        except OSError as error:
            raise TryAgain(
                f"cannot write a segment to {staged.parent}: {error.strerror or error}",
                hint="free space on that file system; nothing was lost, the batch is tried again",
            ) from error
        segment = home.open_segment(staged, kind)
        self._unnamed.append(segment)
        self.nbytes += segment.size
        return segment

    def name(self, is_live: Callable[[Segment], bool]) -> None:
        """Bring the segments that stay to storage; the others go, and who reads them reads on."""
        while self._unnamed:
            segment = self._unnamed.pop()
            if is_live(segment):
                self.home.adopt(segment, self.ticket, self.run)
            else:
                Path(segment.path).unlink(missing_ok=True)

    def discard(self) -> None:
        """The epoch is given up: what has no name goes."""
        self.name(lambda _: False)

    def place(self, path: Path, label: str) -> Segment:
        name, size, check = (
            self.home.new_segment(self.ticket, self.run),
            path.stat().st_size,
            checksum(path),
        )
        self.home.place(name, path)
        return SstFile(str(self.home.path_of(name)), label, size, check)


def entry_of(segment: Segment) -> SegmentEntry:
    """How a manifest names a segment."""
    return SegmentEntry(
        name=f"segments/{Path(segment.path).name}",
        kind=segment.kind,
        size=segment.size,
        rows=segment.rows,
        min_slice=min(segment.sections),
        max_slice=max(segment.sections),
        crc=segment.checksum,
        label=segment.label,
    )
