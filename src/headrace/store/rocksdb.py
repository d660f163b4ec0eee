"""The RocksDB store: any layout's logic over RocksDB instead of segments. The yardstick, and a way out.

`inner` is the store that the operator would have, with a small part of the memory for the rows of the
running epoch; what it seals goes into RocksDB, and what it reads are views of RocksDB (`RocksSegment`). A
version is RocksDB's own files. RocksDB compacts itself.
Invariants: `segments` are the files of the last settled version; nothing of an epoch that was not settled
is ever among them, because the folder goes with the store.
Threads: as every store; the write thunk puts and flushes while results are read from views made before.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import rocksdict

from headrace.format.segment import SectionEntry
from headrace.spec import OperatorSpec
from headrace.store import session_rows
from headrace.store.budget import MemoryBudget
from headrace.store.contract import Compaction, FileKind, LooksUp, PlacingSeal, Seal, Sections, Store, Write
from headrace.store.kept import time_bound
from headrace.store.rocksdb_files import Database, give_back
from headrace.store.rocksdb_sweep import alive, habit_of
from headrace.store.rocksdb_view import RocksSegment, Shelf
from headrace.store.run import Run
from headrace.store.segment import Segment

_DIRECTORY = b"\xff"
SWEEP_ROWS = 1 << 16
SWEEP_PART = 1 << 13  # rows in memory at once, with all that is known of their sessions
_INNER_PART = 4  # a quarter of the share is for the rows of the running epoch

OpenInner = Callable[[MemoryBudget, Seal, list[Segment]], Store]


class PartBudget(MemoryBudget):
    """A part of a partition's share."""

    def __init__(self, whole: MemoryBudget) -> None:
        super().__init__(whole.limit_bytes)
        self._whole = whole

    @property
    def share_bytes(self) -> int:
        return self._whole.share_bytes // _INNER_PART


@dataclass
class Directory:
    """Which sections each kind has, how many rows at most, between which order keys; and the next seal."""

    seal: int = 1
    kinds: dict[str, dict[int, SectionEntry]] = field(default_factory=dict)

    def add(self, kind: str, written: dict[int, SectionEntry], dated: bool) -> None:
        held = self.kinds.setdefault(kind, {})
        for section, entry in written.items():
            if dated and held:
                before = held.pop(max(held))
                held[max(section, before.slice)] = joined(before, entry)
            else:
                held[section] = joined(held.get(section), entry)

    def encode(self) -> bytes:
        said = {
            kind: [[e.slice, e.rows, e.min_hash, e.max_hash, e.index] for e in sections.values()]
            for kind, sections in self.kinds.items()
        }
        return json.dumps({"seal": self.seal, "kinds": said}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Directory:
        said = json.loads(data)
        kinds = {
            kind: {
                number: SectionEntry(number, rows, 0, low, high, 0, size, 0)
                for number, rows, low, high, size in held
            }
            for kind, held in said["kinds"].items()
        }
        return cls(said["seal"], kinds)


def entry_of(section: int, run: Run) -> SectionEntry:
    """A section of that run; its bytes are as in memory."""
    low, high = int(run.hashes[0]), int(run.hashes[-1])
    return SectionEntry(section, len(run), 0, low, high, 0, run.nbytes, 0)


def joined(before: SectionEntry | None, after: SectionEntry) -> SectionEntry:
    """A section with what was put into it before."""
    if before is None:
        return after
    low, high = min(before.min_hash, after.min_hash), max(before.max_hash, after.max_hash)
    number, size = max(before.slice, after.slice), before.index + after.index
    return SectionEntry(number, before.rows + after.rows, 0, low, high, 0, size, 0)


class Putter:
    """What the inner store takes for a seal: rows go to RocksDB and come back as a view of just those.

    It does not know the store, so that a store that nobody holds any more goes at once, and its folder too.
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

    def __call__(self, kind: FileKind, sections: Sections) -> Segment:
        shelf = self.shelves[kind.name]
        with self._mutex:
            seal = self.directory.seal
            self.directory.seal, self.changed = seal + 1, True
            written: dict[int, SectionEntry] = {}
            for section, runs in sections:
                for run in runs:
                    if len(run):
                        shelf.put(section, run, seal)
                        written[section] = joined(written.get(section), entry_of(section, run))
                shelf.first_seals.setdefault(section, seal)
            self.directory.add(kind.name, written, shelf.habit.dated)
        return RocksSegment(shelf, written, range(seal, seal + 1), spill=True)

    def views(self) -> list[Segment]:
        """The rows of each kind as they are now."""
        seals = range(self.directory.seal)
        return [
            RocksSegment(shelf, dict(self.directory.kinds[name]), seals)
            for name, shelf in self.shelves.items()
            if self.directory.kinds.get(name)
        ]


class RocksStore:
    """A store over RocksDB."""

    def __init__(
        self,
        open_inner: OpenInner,
        spec: OperatorSpec,
        kinds: Sequence[FileKind],
        budget: MemoryBudget,
        seal: Seal,
        files: list[Segment],
    ) -> None:
        self.seal, self.segments = seal, files
        self._budget, self._part = budget, PartBudget(budget)
        self._db = Database(files, budget.share_bytes - self._part.share_bytes)
        held = self._db.get_many([_DIRECTORY])[0]
        self._directory = Directory() if held is None else Directory.decode(held)
        self._put = Putter(self._db, spec, kinds, self._directory)
        self._swept: dict[str, int] = {}  # rows of a dated kind at which the next sweep is due
        self._version = {file.label: file for file in files}
        self._inner = open_inner(self._part, self._put, self._put.views())
        self._purge(self._inner.watermark_us)

    @property
    def spec(self) -> OperatorSpec:
        return self._inner.spec

    @spec.setter
    def spec(self, spec: OperatorSpec) -> None:
        self._inner.spec = spec

    @property
    def watermark_us(self) -> int | None:
        return self._inner.watermark_us

    @watermark_us.setter
    def watermark_us(self, watermark_us: int | None) -> None:
        self._inner.watermark_us = watermark_us

    @property
    def late_rows(self) -> int:
        return self._inner.late_rows

    @late_rows.setter
    def late_rows(self, late_rows: int) -> None:
        self._inner.late_rows = late_rows

    @property
    def memory_bytes(self) -> int:
        return self._inner.memory_bytes + self._db.memory_bytes

    @property
    def looks_up(self) -> bool:
        return isinstance(self._inner, LooksUp) and self._inner.looks_up

    def apply(self, rows: pa.RecordBatch) -> None:
        self._db.limit(self._budget.share_bytes - self._part.share_bytes)
        self._inner.apply(rows)

    def gather(self, watermark_us: int | None) -> Write:
        write = self._inner.gather(watermark_us)
        give_back()  # what lookups took; results will need it

        def put_and_flush() -> list[Segment]:
            write()
            return self._checkpoint() if self._put.changed else []

        return put_and_flush

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        return self._inner.results(watermark_us)

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self.segments, self._put.changed = segments, False
        for shelf in self._put.shelves.values():
            shelf.first_seals.clear()
        self._purge(watermark_us)
        self._sweep(watermark_us)
        self._inner.settle(self._put.views(), watermark_us)
        give_back()

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        """Whether RocksDB still has the file."""
        return self._version.get(segment.label) is segment

    def keys_after(self, watermark_us: int | None) -> int:
        return self._inner.keys_after(watermark_us)

    def compaction(self, many: int | None = None) -> Compaction | None:
        return None

    def _checkpoint(self) -> list[Segment]:
        """The files that this version has and the one before has not."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.put(_DIRECTORY, self._directory.encode())
        self._db.write(batch)
        assert isinstance(self.seal, PlacingSeal), "RocksDB's files need a seal that places files"
        version, fresh = {}, []
        for path in self._db.checkpoint():
            held = self._version.get(path.name)
            if held is None or not path.name.endswith(".sst"):
                held = self.seal.place(path, path.name)
                fresh.append(held)
            version[path.name] = held
        self._db.forget_checkpoint()
        self._version = version
        return fresh

    def _purge(self, watermark_us: int | None) -> None:
        """Delete sections that are dead by now; the next version no longer has them."""
        for name, held in self._directory.kinds.items():
            shelf = self._put.shelves[name]
            if shelf.habit.expires and watermark_us is not None:
                self._db.delete_range(shelf.bound(0, 0), shelf.bound(0, time_bound(watermark_us) + 1))
            for section, entry in list(held.items()):
                alone = RocksSegment(shelf, {section: entry}, range(self._directory.seal))
                if not self._inner.is_live(alone, watermark_us):
                    self._db.delete_range(shelf.bound(section, 0), shelf.bound(section, 1 << 64))
                    del held[section]
                    self._put.changed = True

    def _sweep(self, watermark_us: int | None) -> None:
        """Take dead rows out of sections that live on, once they have grown to twice what was alive."""
        for name, held in self._directory.kinds.items():
            shelf = self._put.shelves[name]
            for section, entry in list(held.items()) if shelf.habit.dated else ():
                if entry.rows > self._swept.get(name, 0) + SWEEP_ROWS:
                    held[section] = self._swept_entry(shelf, entry, watermark_us)
                    self._swept[name] = 2 * held[section].rows
                    self._put.changed = True

    def _swept_entry(self, shelf: Shelf, entry: SectionEntry, watermark_us: int | None) -> SectionEntry:
        """What is left of a section: ranges with dead rows are written anew without them."""
        seal, rows, size = self._directory.seal, 0, 0
        self._directory.seal += 1
        whole = RocksSegment(shelf, {entry.slice: entry}, range(seal))
        sessions = [view for view in self._put.views() if view.kind == session_rows.ROWS]
        for low, high in whole.ranges(entry.slice, SWEEP_PART):
            run = whole.scan_range(entry.slice, low, high)
            mask = alive(self.spec, shelf.kind, run, sessions, watermark_us)
            kept = Run(run.hashes[mask], run.words[mask], run.heap)
            rows, size = rows + len(kept), size + kept.hashes.nbytes + kept.words.nbytes
            if not mask.all():
                self._db.delete(self._db.keys(shelf.bound(0, low), shelf.bound(0, high)))
                shelf.put(entry.slice, kept, seal)
        return replace(entry, rows=rows, index=size)
