"""The files of one epoch, in two forms: published at once (here), or logged first (`logged_files`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from headrace.checkpoint.home import PartitionHome
from headrace.errors import HeadraceError, TryAgain
from headrace.files.local import second_name
from headrace.store.base.files import FileKind, Sections
from headrace.store.rocksdb.sst import SstFile, checksum
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.wire.contract import Ticket

log = logging.getLogger("headrace.host")


class EpochFiles(Protocol):
    """Writes and names the files of one ticket's epoch. Threads: one at a time."""

    ticket: Ticket
    run: int
    nbytes: int  # of all segments written

    def write(self, kind: FileKind, sections: Sections) -> SegmentFile:
        """Flushes sections as one segment, and opens it."""

    def spill(self, kind: FileKind, sections: Sections) -> SegmentFile:
        """Writes a segment long before the epoch ends, which the version will most likely name."""

    def place(self, path: Path, label: str) -> SstFile:
        """Moves a finished file that is not a segment into the version."""

    def adopt(self, segment: SegmentFile) -> None:
        """Names a staged segment."""

    def keep(self, is_live: Callable[[Segment], bool]) -> None:
        """Names the live segments that were written; the others are not needed any more."""

    def discard(self) -> None:
        """The epoch was aborted."""


@dataclass(frozen=True)
class _Upload:
    """An upload that was begun."""

    name: str
    path: Path  # a second name of the staged file, which the upload removes
    done: Future[None]


class UploadsAhead:
    """Uploads spilled segments while their batch goes on.

    A segment is uploaded under a name of its own, from a second hard link. One that no version names in the
    end is an unnamed object, which the collector removes.
    Threads: one caller; uploads run in a pool.
    """

    def __init__(self, pool: Executor, wait: Callable[[Future[None]], None]) -> None:
        self._pool, self._wait = pool, wait
        self._begun: dict[str, _Upload] = {}  # by staged id

    def begin(self, home: PartitionHome, staged_id: str, name: str) -> None:
        with suppress(TryAgain):  # no room for a second name: the segment is uploaded at the end
            second = second_name(home.files.path(staged_id))
            if second is None:
                return
            self._begun[staged_id] = _Upload(name, second, self._pool.submit(home.place, name, second))

    def finish(self, staged_id: str) -> str | None:
        """The name that the segment has on shared storage; None where it is not there."""
        upload = self._begun.pop(staged_id, None)
        if upload is None:
            return None
        try:
            self._wait(upload.done)
        except (HeadraceError, OSError) as error:
            log.warning("%s was not uploaded ahead of its commit: %s", upload.name, error)
            return None
        return upload.name

    def forget(self, staged_id: str) -> None:
        """Nobody needs the upload; one under way ends by itself."""
        upload = self._begun.pop(staged_id, None)
        if upload is not None and upload.done.cancel():
            upload.path.unlink(missing_ok=True)


@dataclass
class PublishedFiles:
    """Files that are on shared storage once they have a name (`EpochFiles`).

    A segment is staged until `keep`: many are read and dropped before the epoch ends, and need not be
    synced or uploaded. Spilled ones are uploaded at once where storage is elsewhere and `ahead` is given.
    """

    home: PartitionHome
    ticket: Ticket
    run: int
    ahead: UploadsAhead | None = None
    nbytes: int = 0
    _staged: list[SegmentFile] = field(default_factory=list)

    def write(self, kind: FileKind, sections: Sections) -> SegmentFile:
        home, shape = self.home, kind.shape
        path = home.blobs.staging(f"{home.prefix}/segments/epoch")
        try:
            write_segment(path, shape.width, sections, shape.variable_words, sync=False)
        except OSError as error:
            raise TryAgain(
                f"cannot write a segment to {path.parent}: {error.strerror or error}",
                hint="free space on that file system; nothing was lost, the batch is tried again",
            ) from error
        segment = home.open_segment(home.files.stage(path), kind)
        self._staged.append(segment)
        self.nbytes += segment.size
        return segment

    def spill(self, kind: FileKind, sections: Sections) -> SegmentFile:
        segment = self.write(kind, sections)
        if self.ahead is not None and not self.home.blobs.in_place:
            self.ahead.begin(self.home, segment.file.id, self.home.new_name(self.ticket, self.run))
        return segment

    def place(self, path: Path, label: str) -> SstFile:
        size, check, name = path.stat().st_size, checksum(path), self.home.new_name(self.ticket, self.run)
        self.home.place(name, path)
        return self.home.sst_file(name, label, size, check)

    def adopt(self, segment: SegmentFile) -> None:
        staged_id = segment.file.id
        name = None if self.ahead is None else self.ahead.finish(staged_id)
        if name is None:
            self.home.upload_staged(segment, self.home.new_name(self.ticket, self.run))
        else:
            self.home.files.discard(staged_id)
            segment.file = replace(segment.file, id=name)

    def keep(self, is_live: Callable[[Segment], bool]) -> None:
        """Uploads live segments and deletes the rest; open readers keep their descriptor."""
        while self._staged:
            segment = self._staged.pop()
            if is_live(segment):
                self.adopt(segment)
            else:
                if self.ahead is not None:
                    self.ahead.forget(segment.file.id)
                self.home.files.discard(segment.file.id)

    def discard(self) -> None:
        self.keep(lambda _: False)
