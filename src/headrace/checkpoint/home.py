"""The home of one partition: its files, its manifests, and opening both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.publish import ManifestPublisher
from headrace.checkpoint.restore import read_manifest
from headrace.clock import Clock
from headrace.errors import RestoreState, StateCorrupt, StateUnsupported
from headrace.files.logical import LogicalFile
from headrace.files.opened import OpenFile
from headrace.files.rollup import Known, RollUp
from headrace.files.space import PartialSpace
from headrace.files.table import FileTable
from headrace.format.manifest import Manifest, SegmentEntry, decode, encode
from headrace.format.names import SEQUENCES, home_of, segment_name
from headrace.operators.open import kinds_of
from headrace.plan.ids import new_write_id, spec_digest
from headrace.plan.partitions.groups import ALL_GROUPS
from headrace.store.base.files import FileKind
from headrace.store.rocksdb.sst import SST, SstFile
from headrace.store.rocksdb.sst import checksum as crc_of
from headrace.store.segments.clip import ClippedSegment
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.wire.contract import Ticket


@dataclass(frozen=True)
class PartitionHome:
    """The partition's folder: `<query>/<operator>/p<partition>`, or `…/g<first>-<last group>`."""

    blobs: Blobs
    prefix: str
    publisher: ManifestPublisher
    files: FileTable
    sequence: itertools.count[int]
    log: LocalLog | None = None
    rollup: RollUp | None = None

    @classmethod
    def of(
        cls,
        blobs: Blobs,
        prefix: str,
        clock: Clock,
        log: LocalLog | None = None,
        retry: Retry | None = None,
        space: PartialSpace | None = None,
        rollup: RollUp | None = None,
    ) -> PartitionHome:
        publisher = ManifestPublisher(blobs, prefix, clock, retry)
        files = FileTable(blobs, prefix, log, space)
        return cls(blobs, prefix, publisher, files, itertools.count(), log, rollup)

    def known_manifest(self, name: str, prefix: str | None = None) -> Manifest | None:
        """The manifest of that very name, of this partition or another one, if a roll-up has it."""
        prefix = self.prefix if prefix is None else prefix
        data = None if self.rollup is None else self.rollup.manifest(prefix, name)
        with suppress(RestoreState):
            return None if data is None else decode(data, f"{self.blobs.root}/{prefix}/{name}")
        return None

    def read_manifests(self, names: Sequence[str]) -> list[Manifest]:
        """The manifests of these whole names, in the same order."""
        return self.files.in_parallel([partial(self._read_manifest, name) for name in names])

    def _read_manifest(self, name: str) -> Manifest:
        prefix = home_of(name)
        return self.known_manifest(name.removeprefix(f"{prefix}/"), prefix) or read_manifest(
            self.blobs, name
        )

    def roll_up(self, manifest: Manifest, segments: Sequence[Segment]) -> None:
        """Offers a version to the next roll-up."""
        if self.rollup is not None:
            ends = {each.file.id: each.end for each in segments if isinstance(each, SegmentFile)}
            known = Known(manifest.version, manifest.name, encode(manifest), ends)
            self.rollup.offer(self.prefix, known)

    @property
    def where(self) -> str:
        """The folder on shared storage, for messages."""
        return f"{self.blobs.root}/{self.prefix}"

    def new_name(self, ticket: Ticket, run: int) -> str:
        """A name that no other attempt has or will have.

        The sequence wraps around: it distinguishes the few segments of one attempt.
        """
        return segment_name(ticket.batch, run, ticket.attempt, next(self.sequence) % SEQUENCES)

    # ── staged files ─────────────────────────────────────────────────────────────────────────

    def staged(self, kind: FileKind, write: Callable[[Path], bool]) -> SegmentFile | None:
        """Writes a file that no version names, and opens it; None when `write` returns False.

        None, too, when it has no row: clipped segments may have none between them.
        """
        path = self._staging()
        if not write(path):
            return None
        segment = self.open_segment(self.files.stage(path), kind)
        if segment.sections:
            return segment
        self.discard([segment])
        return None

    def upload_staged(self, segment: SegmentFile, name: str) -> None:
        """Moves a staged segment to shared storage under its name."""
        staged_id = segment.file.id
        self.place(name, self.files.path(staged_id))
        self.files.unstage(staged_id)
        segment.file = replace(segment.file, id=name)

    def discard(self, segments: Iterable[Segment]) -> None:
        """Removes staged files; no version names them, so nothing needs them."""
        for segment in segments:
            segment.close()
            self.files.discard(segment.file.id)

    def _staging(self) -> Path:
        if self.log is not None and self.log.is_open:
            return self.log.staging()
        return self.blobs.staging(f"{self.prefix}/segments/compaction")

    def place(self, name: str, staged: Path) -> None:
        """Moves a finished file to storage; a failure leaves no file.

        The next attempt writes the file again, and nothing sweeps the files of a process that is alive.
        """
        try:
            self.publisher.place_segment(name, staged)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise

    # ── opening ──────────────────────────────────────────────────────────────────────────────

    def open_segment(
        self, file_id: str, kind: FileKind, checksum: int | None = None, size: int | None = None
    ) -> SegmentFile:
        """Opens a segment; bytes of a local copy that are damaged are fetched again."""
        opened = self.files.open(file_id, size)
        try:
            return self._segment_over(opened, file_id, kind, checksum)
        except StateCorrupt:
            fresh = self.files.open_again(file_id, opened)
            if fresh is None:
                raise
            return self._segment_over(fresh, file_id, kind, checksum)

    def _segment_over(
        self, opened: OpenFile, file_id: str, kind: FileKind, checksum: int | None
    ) -> SegmentFile:
        shape = kind.shape
        return SegmentFile.over(
            opened,
            file_id,
            shape.width,
            shape.variable_key_words,
            checksum=checksum,
            kind=kind.name,
            origin=self.files,
            end=None if self.rollup is None else self.rollup.end(self.prefix, file_id),
        )

    def open_segments(self, manifest: Manifest, kinds: Sequence[FileKind]) -> list[Segment]:
        """Opens the segments of a version; a shared one without a row of the partition is left out."""
        return self.open_entries(manifest.segments, kinds)

    def open_entries(self, entries: Sequence[SegmentEntry], kinds: Sequence[FileKind]) -> list[Segment]:
        """The same for the segments of some entries."""
        by_name = {kind.name: kind for kind in kinds}
        opening = [partial(self._open, entry, by_name) for entry in entries]
        return [segment for segment in self.files.in_parallel(opening) if segment.sections]

    def _open(self, entry: SegmentEntry, kinds: Mapping[str, FileKind]) -> Segment:
        if entry.kind == SST:
            return self.sst_file(entry.name, entry.label, entry.size, entry.crc)
        if entry.kind not in kinds:
            raise StateUnsupported(
                f"{entry.name} holds {entry.kind!r}, and the operator reads {', '.join(kinds)}",
                hint="another release wrote it: go on with that one, or start from a new checkpoint",
            )
        kind = kinds[entry.kind]
        whole = self.open_segment(entry.name, kind, entry.crc, entry.size)
        if entry.groups.are_all:
            return whole
        return ClippedSegment(whole, entry.groups, entry.rows, kind.hash_word)

    def sst_file(self, file_id: str, label: str, size: int, checksum: int) -> SstFile:
        def copy(copied_id: str, target: Path, link: bool) -> None:
            self.files.drop_copy(copied_id, lambda path: crc_of(path) != checksum)
            self.files.copy(copied_id, target, link=link)

        return SstFile(LogicalFile(file_id, SST, size, checksum), label, copy)

    # ── manifests ────────────────────────────────────────────────────────────────────────────

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


def entry_of(segment: Segment) -> SegmentEntry:
    """The entry of a segment in a manifest."""
    file = segment.file
    groups = segment.groups if isinstance(segment, ClippedSegment) else ALL_GROUPS
    return SegmentEntry(
        name=file.id,
        kind=file.kind,
        size=file.size,
        rows=segment.rows,
        min_slice=min(segment.sections),
        max_slice=max(segment.sections),
        crc=file.checksum,
        label=segment.label,
        low=groups.low,
        high=groups.high,
    )
