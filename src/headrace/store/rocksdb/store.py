"""The RocksDB store: any layout's logic over RocksDB instead of segments. The yardstick, and a way out.

`inner` is the store that the operator would have, with a small part of the memory for the rows of the
running epoch. What it flushes goes into RocksDB, and what it reads are views of RocksDB (`RocksView`). A
version is RocksDB's own files. RocksDB compacts itself.
Invariants: `segments` are the files of the last settled version; nothing of an epoch that was not settled
is ever among them, because the folder goes with the store.
Threads: as every store; the write thunk puts and flushes while results are read from views made before.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa
import rocksdict

from headrace.format.segment import SectionEntry
from headrace.plan.spec import OperatorSpec
from headrace.row.run import Run
from headrace.store.base.contract import Store
from headrace.store.base.delegating import DelegatingStore
from headrace.store.base.files import FileKind, Files, Gathered, Sections
from headrace.store.base.jobs import Job
from headrace.store.base.room import EPOCH_ROWS
from headrace.store.base.share import PartialShare, Share
from headrace.store.rocksdb.files import Database, give_back
from headrace.store.rocksdb.sst import SstFile
from headrace.store.rocksdb.sweep import alive, habit_of
from headrace.store.rocksdb.view import RocksView, Shelf
from headrace.store.rows.kept_layout import time_bound
from headrace.store.segments.reader import Segment
from headrace.store.sessions import rows as session_rows

_DIRECTORY = b"\xff"
SWEEP_ROWS = 1 << 16
SWEEP_PART = 1 << 13  # rows in memory at once, with all that is known of their sessions

OpenInner = Callable[[Share, Files, list[Segment]], Store]


@dataclass
class Directory:
    """The sections of each kind with their order keys and most rows, and the number of the next flush."""

    next_flush: int = 1
    kinds: dict[str, dict[int, SectionEntry]] = field(default_factory=dict)

    def add(self, kind: str, written: dict[int, SectionEntry], dated: bool) -> None:
        sections = self.kinds.setdefault(kind, {})
        for section, entry in written.items():
            if dated and sections:
                before = sections.pop(max(sections))
                sections[max(section, before.slice)] = joined(before, entry)
            else:
                sections[section] = joined(sections.get(section), entry)

    def encode(self) -> bytes:
        kinds = {
            kind: [[e.slice, e.rows, e.min_hash, e.max_hash, e.index] for e in sections.values()]
            for kind, sections in self.kinds.items()
        }
        return json.dumps({"seal": self.next_flush, "kinds": kinds}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Directory:
        body = json.loads(data)
        kinds = {
            kind: {
                number: SectionEntry(number, rows, 0, low, high, 0, size, 0)
                for number, rows, low, high, size in entries
            }
            for kind, entries in body["kinds"].items()
        }
        return cls(body["seal"], kinds)


def entry_of(section: int, run: Run) -> SectionEntry:
    """A section of that run; its bytes are as in memory."""
    low, high = int(run.order[0]), int(run.order[-1])
    return SectionEntry(section, len(run), 0, low, high, 0, run.nbytes, 0)


def joined(before: SectionEntry | None, after: SectionEntry) -> SectionEntry:
    """A section with what was put into it before."""
    if before is None:
        return after
    low, high = min(before.min_hash, after.min_hash), max(before.max_hash, after.max_hash)
    number, size = max(before.slice, after.slice), before.index + after.index
    return SectionEntry(number, before.rows + after.rows, 0, low, high, 0, size, 0)


class Putter(Files):
    """The `Files` of the inner store: rows go to RocksDB and come back as a view of just those.

    It does not reference the store, so that a dropped store and its folder are freed at once.
    """

    def __init__(
        self, database: Database, spec: OperatorSpec, kinds: Sequence[FileKind], directory: Directory
    ) -> None:
        self.directory = directory
        self.shelves = {
            kind.name: Shelf(database, kind, number, habit_of(spec, kind))
            for number, kind in enumerate(kinds)
        }
        self.changed = False
        self._mutex = threading.Lock()

    def write(self, kind: FileKind, sections: Sections) -> Segment:
        shelf = self.shelves[kind.name]
        with self._mutex:
            flush = self.directory.next_flush
            self.directory.next_flush, self.changed = flush + 1, True
            written: dict[int, SectionEntry] = {}
            for section, runs in sections:
                for run in runs:
                    if len(run):
                        shelf.put(section, run, flush)
                        written[section] = joined(written.get(section), entry_of(section, run))
                shelf.first_flushes.setdefault(section, flush)
            self.directory.add(kind.name, written, shelf.habit.dated)
        return RocksView(shelf, written, range(flush, flush + 1), spill=True)

    def views(self) -> list[Segment]:
        """The rows of each kind as they are now."""
        flushes = range(self.directory.next_flush)
        return [
            RocksView(shelf, dict(self.directory.kinds[name]), flushes)
            for name, shelf in self.shelves.items()
            if self.directory.kinds.get(name)
        ]


def opened_views(
    files: list[Segment], spec: OperatorSpec, kinds: Sequence[FileKind], memory_bytes: int
) -> tuple[Database, list[Segment]]:
    """The rows of a version's files, to be read only; the caller closes the database."""
    database = Database(cast("list[SstFile]", files), memory_bytes)
    written = database.get_many([_DIRECTORY])[0]
    directory = Directory() if written is None else Directory.decode(written)
    return database, Putter(database, spec, kinds, directory).views()


class RocksStore(DelegatingStore):
    """A store over RocksDB."""

    def __init__(
        self,
        open_inner: OpenInner,
        spec: OperatorSpec,
        kinds: Sequence[FileKind],
        share: Share,
        epoch_files: Files,
        files: list[Segment],
    ) -> None:
        self._epoch_files, self._sst_files = epoch_files, files
        self._share, self._part = share, PartialShare(share, EPOCH_ROWS)
        self.database = Database(cast("list[SstFile]", files), share.limit_bytes - self._part.limit_bytes)
        data = self.database.get_many([_DIRECTORY])[0]
        self._directory = Directory() if data is None else Directory.decode(data)
        self._put = Putter(self.database, spec, kinds, self._directory)
        self._swept: dict[str, int] = {}  # rows of a dated kind at which the next sweep is due
        self._version = {file.label: file for file in files}
        super().__init__(open_inner(self._part, self._put, self._put.views()))
        self._purge(self._inner.watermark_us)

    @property
    def files(self) -> Files:
        """The files of the epoch; the inner store writes into RocksDB."""
        return self._epoch_files

    @files.setter
    def files(self, files: Files) -> None:
        self._epoch_files = files

    @property
    def segments(self) -> list[Segment]:
        """RocksDB's files; the segments of the inner store are views."""
        return self._sst_files

    @segments.setter
    def segments(self, segments: list[Segment]) -> None:
        self._sst_files = segments

    @property
    def views(self) -> list[Segment]:
        """RocksDB's content, as the inner store reads it."""
        return self._put.views()

    @property
    def memory_bytes(self) -> int:
        return self._inner.memory_bytes + self.database.memory_bytes

    def apply(self, rows: pa.RecordBatch) -> None:
        self.database.limit(self._share.limit_bytes - self._part.limit_bytes)
        self._inner.apply(rows)

    def gather(self, watermark_us: int | None) -> Gathered:
        write = self._inner.gather(watermark_us)
        give_back()  # what lookups took; results will need it

        def put_and_flush() -> list[Segment]:
            write()
            return self._checkpoint() if self._put.changed else []

        return Gathered(self.files, early=put_and_flush)

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self.segments, self._put.changed = segments, False
        for shelf in self._put.shelves.values():
            shelf.first_flushes.clear()
        self._purge(watermark_us)
        self._sweep(watermark_us)
        self._inner.settle(self._put.views(), watermark_us)
        give_back()

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        """Whether RocksDB still has the file."""
        return self._version.get(segment.label) is segment

    def maintenance(self, many: int | None = None) -> Job | None:
        return None

    def _checkpoint(self) -> list[Segment]:
        """Places the files that this version adds to the one before."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.put(_DIRECTORY, self._directory.encode())
        self.database.write(batch)
        version, fresh = {}, []
        for path in self.database.checkpoint():
            file = self._version.get(path.name)
            if file is None or not path.name.endswith(".sst"):
                file = self.files.place(path, path.name)
                fresh.append(file)
            version[path.name] = file
        self.database.forget_checkpoint()
        self._version = version
        return fresh

    def _purge(self, watermark_us: int | None) -> None:
        """Delete sections that are dead by now; the next version no longer has them."""
        for name, entries in self._directory.kinds.items():
            shelf = self._put.shelves[name]
            if shelf.habit.expires and watermark_us is not None:
                self.database.delete_range(shelf.bound(0, 0), shelf.bound(0, time_bound(watermark_us) + 1))
            for section, entry in list(entries.items()):
                alone = RocksView(shelf, {section: entry}, range(self._directory.next_flush))
                if not self._inner.is_live(alone, watermark_us):
                    self.database.delete_range(shelf.bound(section, 0), shelf.bound(section, 1 << 64))
                    del entries[section]
                    self._put.changed = True

    def _sweep(self, watermark_us: int | None) -> None:
        """Take dead rows out of sections that live on, once they have grown to twice what was alive."""
        for name, entries in self._directory.kinds.items():
            shelf = self._put.shelves[name]
            for section, entry in list(entries.items()) if shelf.habit.dated else ():
                if entry.rows > self._swept.get(name, 0) + SWEEP_ROWS:
                    entries[section] = self._swept_entry(shelf, entry, watermark_us)
                    self._swept[name] = 2 * entries[section].rows
                    self._put.changed = True

    def _swept_entry(self, shelf: Shelf, entry: SectionEntry, watermark_us: int | None) -> SectionEntry:
        """What is left of a section: ranges with dead rows are written anew without them."""
        flush, rows, size = self._directory.next_flush, 0, 0
        self._directory.next_flush += 1
        whole = RocksView(shelf, {entry.slice: entry}, range(flush))
        sessions = [view for view in self._put.views() if view.kind == session_rows.ROWS]
        for low, high in whole.ranges(entry.slice, SWEEP_PART):
            run = whole.scan_range(entry.slice, low, high)
            mask = alive(self.spec, shelf.kind, run, sessions, watermark_us)
            kept = Run(run.order[mask], run.words[mask], run.heap)
            rows, size = rows + len(kept), size + kept.order.nbytes + kept.words.nbytes
            if not mask.all():
                self.database.delete(self.database.keys(shelf.bound(0, low), shelf.bound(0, high)))
                shelf.put(entry.slice, kept, flush)
        return replace(entry, rows=rows, index=size)
