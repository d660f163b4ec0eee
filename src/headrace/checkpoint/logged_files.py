"""Files of an epoch on the machine's own disk, under the names that they will have on shared storage.

Threads: any. Two processes that work on one log entry write the same bytes under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.checkpoint.epoch_files import UploadsAhead
from headrace.checkpoint.home import PartitionHome, entry_of
from headrace.checkpoint.log import LocalLog, LogEntry, Planned
from headrace.checkpoint.whole import check_whole
from headrace.errors import BlobMissing, Fenced, StateMissing
from headrace.files.local import move, second_name, writing
from headrace.files.opened import OpenFile
from headrace.format.manifest import SegmentEntry
from headrace.operators.open import kinds_of
from headrace.plan.spec import OperatorSpec
from headrace.store.base.files import FileKind, Sections
from headrace.store.rocksdb.sst import SstFile, checksum
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.wire.contract import Ticket

_LOST = "hr.start or `headrace recover <checkpoint>` takes the batch back"


@dataclass
class LoggedFiles:
    """Files that are in the local log until the epoch is published (`EpochFiles`)."""

    home: PartitionHome
    log: LocalLog
    ticket: Ticket
    run: int
    ahead: UploadsAhead | None = None
    nbytes: int = 0
    _planned: list[str] = field(default_factory=list)  # names in the log entry, in the order of writing
    _spilled: list[str] = field(default_factory=list)

    def plan(self, parts: Sequence[tuple[FileKind, Sections]]) -> list[Planned]:
        """Names the segments that will be written next."""
        planned = [Planned(self._new(), kind.name, sections) for kind, sections in parts]
        self._planned = [part.name for part in planned]
        return planned

    def write(self, kind: FileKind, sections: Sections) -> SegmentFile:
        name = self._planned.pop(0) if self._planned else self._new()
        segment = write_logged(self.home, self.log, name, kind, sections)
        self.nbytes += segment.size
        return segment

    def spill(self, kind: FileKind, sections: Sections) -> SegmentFile:
        segment = self.write(kind, sections)
        if self.ahead is not None and not self.home.blobs.in_place:
            self.ahead.begin(self.home, segment.file.id, segment.file.id)
            self._spilled.append(segment.file.id)
        return segment

    def is_uploaded(self, name: str) -> bool:
        """Whether a file was uploaded while its batch went on; waits for an upload under way."""
        return self.ahead is not None and self.ahead.finish(name) is not None

    def place(self, path: Path, label: str) -> SstFile:
        size, check, name = path.stat().st_size, checksum(path), self._new()
        move(path, self.log.file(name))
        self.home.files.log([name])
        return self.home.sst_file(name, label, size, check)

    def adopt(self, segment: SegmentFile) -> None:
        files, staged_id, name = self.home.files, segment.file.id, self._new()
        move(files.path(staged_id), self.log.file(name))
        files.unstage(staged_id)
        files.log([name])
        segment.file = replace(segment.file, id=name)

    def keep(self, is_live: Callable[[Segment], bool]) -> None:
        """All segments have names; those that no version needs are removed with the log entry."""

    def discard(self) -> None:
        """Files of an aborted epoch are removed once a later attempt is published."""
        for name in self._spilled:
            if self.ahead is not None:
                self.ahead.forget(name)

    def _new(self) -> str:
        return self.home.new_name(self.ticket, self.run)


def write_logged(
    home: PartitionHome, log: LocalLog, name: str, kind: FileKind, sections: Sections
) -> SegmentFile:
    """Writes a segment to the local log.

    The segment is opened before it has its name: from then on another host with the same log may publish
    and remove it.
    """
    staged, path, shape = log.staging(), log.file(name), kind.shape
    with writing(path):
        write_segment(staged, shape.width, sections, shape.variable_words, sync=False)
        segment = SegmentFile.over(
            OpenFile.at(staged),
            name,
            shape.width,
            shape.variable_key_words,
            kind=kind.name,
            origin=home.files,
        )
        staged.replace(path)
    home.files.log([name])
    return segment


def seal_entry(home: PartitionHome, log: LocalLog, entry: LogEntry) -> list[SegmentEntry]:
    """Seals the rows of a log entry; returns the manifest's entries of the segments."""
    spec = OperatorSpec.from_json(entry.spec)
    kinds = {kind.name: kind for kind in kinds_of(spec, entry.manifest.store)}
    return [_sealed(home, log, kinds[planned.kind], planned) for planned in entry.planned]


def _sealed(home: PartitionHome, log: LocalLog, kind: FileKind, planned: Planned) -> SegmentEntry:
    segment = write_logged(home, log, planned.name, kind, planned.sections)
    try:
        return entry_of(segment)
    finally:
        segment.close()


def upload(home: PartitionHome, log: LocalLog, entry: SegmentEntry) -> None:
    """Uploads a logged file and keeps it in the log; a file that shared storage has already is fine.

    A damaged file raises `StateCorrupt` and is not uploaded.
    """
    path = log.file(entry.name)
    staged = second_name(path)
    if staged is not None:
        try:
            check_whole(staged, entry)
            home.publisher.place_segment(entry.name, staged)
            return
        except Fenced:  # an earlier try, or a process with the same log, has uploaded it
            pass
        finally:
            staged.unlink(missing_ok=True)
    _check_uploaded(home, path, entry)


def _check_uploaded(home: PartitionHome, path: Path, entry: SegmentEntry) -> None:
    where = f"{home.blobs.root}/{home.prefix}/{entry.name}"
    try:
        size = home.blobs.size(f"{home.prefix}/{entry.name}")
    except BlobMissing as error:
        raise StateMissing(f"neither {where} nor {path} is there", hint=_LOST) from error
    if size != entry.size:
        raise StateMissing(f"{where} has {size} bytes, and {entry.size} were sealed", hint=_LOST)
