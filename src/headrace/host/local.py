"""Files of an epoch on the machine's own disk, under the names that they will have on shared storage.

Threads: any. Two processes that work on one log entry write the same bytes under the same names.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.blob.unfinished import hidden_name
from headrace.checkpoint.log import LocalLog, LogEntry, Planned, writing
from headrace.errors import BlobMissing, Fenced, StateMissing
from headrace.format.manifest import SegmentEntry
from headrace.host.contract import Ticket
from headrace.host.home import PartitionHome, entry_of
from headrace.spec import OperatorSpec
from headrace.store.contract import FileKind, Sections
from headrace.store.open import kinds_of
from headrace.store.seal import write_segment
from headrace.store.segment import Segment
from headrace.store.sst import SstFile, checksum

_LOST = "hr.start or `headrace recover <checkpoint>` takes the batch back"


@dataclass
class LocalSealer:
    """Writes the files of one ticket's epoch to the local disk (`PlacingSeal`)."""

    home: PartitionHome
    log: LocalLog
    ticket: Ticket
    run: int
    names: list[str] = field(default_factory=list)  # promised to the log, in the order of their sections
    nbytes: int = 0  # of all segments

    def plan(self, parts: Sequence[tuple[FileKind, Sections]]) -> list[Planned]:
        """Name the segments that will be sealed next."""
        planned = [Planned(self._new(), kind.name, sections) for kind, sections in parts]
        self.names = [part.name for part in planned]
        return planned

    def __call__(self, kind: FileKind, sections: Sections) -> Segment:
        segment = seal_at(self.log.file(self.names.pop(0) if self.names else self._new()), kind, sections)
        self.nbytes += segment.size
        return segment

    def place(self, path: Path, label: str) -> Segment:
        size, check, target = path.stat().st_size, checksum(path), self.log.file(self._new())
        move(path, target)
        return SstFile(str(target), label, size, check)

    def adopt(self, segment: Segment) -> None:
        """Give a finished compaction a name of this epoch."""
        target = self.log.file(self._new())
        move(Path(segment.path), target)
        segment.path = str(target)

    def _new(self) -> str:
        return self.home.new_segment(self.ticket, self.run)


def seal_at(path: Path, kind: FileKind, sections: Sections) -> Segment:
    """Write a segment; it has its name when it is whole.

    It is open by then: once it has its name, another host with the same log may publish and remove it.
    """
    staged, shape = path.with_name(hidden_name()), kind.shape
    with writing(path):
        write_segment(staged, shape.width, sections, shape.variable_words, sync=False)
        segment = Segment.open(staged, shape.width, shape.variable_key_words, kind=kind.name)
        staged.replace(path)
    segment.path = str(path)
    return segment


def sealed_from(log: LocalLog, entry: LogEntry) -> list[SegmentEntry]:
    """Seal the rows of a log entry; how a manifest names the segments."""
    spec = OperatorSpec.from_json(entry.spec)
    kinds = {kind.name: kind for kind in kinds_of(spec, entry.manifest.store)}
    return [_sealed(log, kinds[planned.kind], planned) for planned in entry.planned]


def _sealed(log: LocalLog, kind: FileKind, planned: Planned) -> SegmentEntry:
    segment = seal_at(log.file(planned.name), kind, planned.sections)
    try:
        return entry_of(segment)
    finally:
        segment.close()


def upload(home: PartitionHome, log: LocalLog, entry: SegmentEntry) -> None:
    """Bring a local segment to shared storage and keep it here; fine when it is there already."""
    path = log.file(entry.name)
    staged = _second_name(path)
    if staged is not None:
        try:
            home.publisher.place_segment(entry.name, staged)
            return
        except Fenced:  # the name is taken: by an earlier try, or by a process with the same log
            pass
        finally:
            staged.unlink(missing_ok=True)
    _check_there(home, path, entry)


def _check_there(home: PartitionHome, path: Path, entry: SegmentEntry) -> None:
    where = f"{home.blobs.root}/{home.prefix}/{entry.name}"
    try:
        size = home.blobs.size(f"{home.prefix}/{entry.name}")
    except BlobMissing as error:
        raise StateMissing(f"neither {where} nor {path} is there", hint=_LOST) from error
    if size != entry.size:
        raise StateMissing(f"{where} has {size} bytes, and {entry.size} were sealed", hint=_LOST)


def _second_name(path: Path) -> Path | None:
    """Another name for a file, to be moved away; None when the file is not there."""
    staged = path.with_name(hidden_name())
    with writing(path):
        try:
            os.link(path, staged)
        except FileNotFoundError:
            return None
    return staged


def move(path: Path, target: Path) -> None:
    """Rename, also between file systems."""
    with writing(target):
        try:
            path.rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            staged = target.with_name(hidden_name())
            shutil.move(path, staged)
            staged.rename(target)
