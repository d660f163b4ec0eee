"""The files of one epoch, in two forms: published at once (here), or logged first (`logged_files`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headrace.checkpoint.home import PartitionHome
from headrace.errors import TryAgain
from headrace.store.base.files import FileKind, Sections
from headrace.store.rocksdb.sst import SstFile, checksum
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.wire.contract import Ticket


class EpochFiles(Protocol):
    """Writes and names the files of one ticket's epoch. Threads: one at a time."""

    ticket: Ticket
    run: int
    nbytes: int  # of all segments written

    def write(self, kind: FileKind, sections: Sections) -> SegmentFile:
        """Flushes sections as one segment, and opens it."""

    def place(self, path: Path, label: str) -> SstFile:
        """Moves a finished file that is not a segment into the version."""

    def adopt(self, segment: SegmentFile) -> None:
        """Names a staged segment."""

    def keep(self, is_live: Callable[[Segment], bool]) -> None:
        """Names the live segments that were written; the others are not needed any more."""

    def discard(self) -> None:
        """The epoch was aborted."""


@dataclass
class PublishedFiles:
    """Files that are on shared storage once they have a name (`EpochFiles`).

    A segment is staged until `keep`: many spilled segments are read and dropped before the epoch ends, and
    need not be synced or uploaded.
    """

    home: PartitionHome
    ticket: Ticket
    run: int
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

    def place(self, path: Path, label: str) -> SstFile:
        size, check, name = path.stat().st_size, checksum(path), self.home.new_name(self.ticket, self.run)
        self.home.place(name, path)
        return self.home.sst_file(name, label, size, check)

    def adopt(self, segment: SegmentFile) -> None:
        self.home.upload_staged(segment, self.home.new_name(self.ticket, self.run))

    def keep(self, is_live: Callable[[Segment], bool]) -> None:
        """Uploads live segments and deletes the rest; open readers keep their descriptor."""
        while self._staged:
            segment = self._staged.pop()
            if is_live(segment):
                self.adopt(segment)
            else:
                self.home.files.discard(segment.file.id)

    def discard(self) -> None:
        self.keep(lambda _: False)
