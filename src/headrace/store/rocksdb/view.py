"""RocksDB seen as a segment: the rows of one kind, to be looked up and scanned like those of a file.

Rows of a kind whose newest row counts lie under their key: a read gets the newest. Rows of a kind
that appends lie under the number of their flush, one value per order key and flush; a view takes its own.
A view's sections are as they were when it was made.
Threads: as segments; the answer under way is remembered for one reader at a time.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import compress, islice

import numpy as np
import rocksdict

from headrace.files.logical import LogicalFile
from headrace.format.segment import SectionEntry
from headrace.kernels.segments.entries import (
    FLUSH_WORD,
    PREFIX_BYTES,
    pack_keys,
    pack_values,
    unpack_values,
)
from headrace.kernels.segments.merge import shift_heap
from headrace.row.arrays import I64, U8, U64, Flags
from headrace.row.run import Run
from headrace.store.append.merge import concatenated
from headrace.store.base.files import FileKind
from headrace.store.rocksdb.files import GET_KEYS, SCAN_VALUES, Database
from headrace.store.rocksdb.sweep import Habit
from headrace.store.segments.reader import Answer, Prepared, empty_run

_BIAS = 1 << 63
EVERY_FLUSH = range(1 << 64)
_BATCH_ROWS = 1 << 12


@dataclass
class Shelf:
    """The place of one kind of rows in the database."""

    database: Database
    kind: FileKind
    number: int  # the first byte of its keys
    habit: Habit
    answering: weakref.ReferenceType[Answer] | None = None
    first_flushes: dict[int, int] = field(default_factory=dict)  # of each section, in the running epoch

    def bound(self, section: int, order: int) -> bytes:
        """Below every key of that section and order key, above every key before; `order` may be 2**64."""
        number = ((self._place(section) + _BIAS) << 64) + order
        return (self.number << 128 | number).to_bytes(PREFIX_BYTES, "big")

    def _place(self, section: int) -> int:
        return 0 if self.habit.dated else section

    def put(self, section: int, run: Run, flush: int) -> None:
        """Write an ordered run, in batches that a write buffer has room for."""
        for start, end in _parts(run.order):
            part = Run(run.order[start:end], run.words[start:end], run.heap)
            self._put(self._place(section), part, flush)

    def _put(self, section: int, run: Run, flush: int) -> None:
        grouped = self.kind.appends or self.habit.whole
        keys, starts = self._group_keys(section, run, flush) if grouped else self._keys(section, run)
        variable = np.array(self.kind.shape.variable_words, np.int64)
        words = np.ascontiguousarray(run.words)
        offsets, data = pack_values(run.order, words, run.heap, variable, starts, np.uint64(flush))
        batch = rocksdict.WriteBatch(raw_mode=True)
        deque(map(batch.put, keys, _cut(data.tobytes(), 8 * offsets)), maxlen=0)
        self.database.write(batch)

    def _group_keys(self, section: int, run: Run, flush: int) -> tuple[list[bytes], I64]:
        """One key per order key, and where its rows begin; the newest whole one takes the others' place."""
        changes = np.flatnonzero(np.diff(run.order)) + 1
        starts: I64 = np.concatenate([[0], changes, [len(run)]]).astype(np.int64)
        size = PREFIX_BYTES if self.habit.whole else PREFIX_BYTES + 8
        keys = np.empty((len(starts) - 1, size), np.uint8)
        keys[:, 0] = self.number
        keys[:, 1:9] = _bytes_of(np.array([section + _BIAS], np.uint64))
        keys[:, 9:17] = _bytes_of(run.order[starts[:-1]])
        if not self.habit.whole:
            keys[:, 17:] = _bytes_of(np.array([flush], np.uint64))
        return _listed(keys), starts

    def keys_at(self, hashes: U64) -> list[bytes]:
        """The keys of whole order keys."""
        keys = np.empty((len(hashes), PREFIX_BYTES), np.uint8)
        keys[:, 0] = self.number
        keys[:, 1:9] = _bytes_of(np.array([_BIAS], np.uint64))
        keys[:, 9:17] = _bytes_of(hashes)
        return _listed(keys)

    def _keys(self, section: int, run: Run) -> tuple[list[bytes], I64]:
        return self.keys_of(section, run), np.arange(len(run) + 1, dtype=np.int64)

    def keys_of(self, section: int, probe: Run) -> list[bytes]:
        """The keys of rows, or of a probe, whose newest row counts."""
        shape = self.kind.shape
        variable: Flags = np.zeros(shape.key_width, np.bool_)
        variable[list(shape.variable_key_words)] = True
        words = np.ascontiguousarray(probe.words)
        offsets, data = pack_keys(
            self.number, np.uint64(section + _BIAS), probe.order, words, probe.heap, variable
        )
        return _cut(data.tobytes(), offsets)

    def rows(self, values: list[bytes], flushes: range = EVERY_FLUSH) -> Run:
        """The rows of those values that one of `flushes` put."""
        shape = self.kind.shape
        data, offsets = _joined(values)
        if flushes != EVERY_FLUSH:
            of_values = data[offsets[:-1] + FLUSH_WORD]
            mine = (of_values >= np.uint64(flushes.start)) & (of_values <= np.uint64(flushes.stop - 1))
            if not mine.all():
                data, offsets = _joined(list(compress(values, mine.tolist())))
        return Run(*unpack_values(data, offsets, shape.width, np.array(shape.variable_words, np.int64)))


class RocksView:
    """The rows of one kind when the view was made (`Segment`); it shows the flushes in a range."""

    memory_bytes = 0  # its memory is the database's cache
    label = ""

    def __init__(
        self, shelf: Shelf, sections: Mapping[int, SectionEntry], flushes: range, *, spill: bool = False
    ) -> None:
        self.kind, self.width = shelf.kind.name, shelf.kind.shape.width
        self.sections = sections
        self.size = sum(entry.index for entry in sections.values())  # as it would be in memory
        self._shelf, self._flushes, self._spill = shelf, flushes, spill

    @property
    def file(self) -> LogicalFile:
        """A view has no file of its own; this one stands for its database."""
        return LogicalFile(str(self._shelf.database.folder), self.kind, self.size, 0)

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.sections.values())

    @property
    def last(self) -> int:
        return max(self.sections)

    def resident_share(self) -> float:
        """RocksDB has its own cache; reading ahead goes by the setting alone."""
        return 0.0

    is_far = False

    def prepare(self, number: int, hashes: U64) -> Future[Prepared]:
        raise TypeError("the files of a database are local")

    def release(self, number: int) -> None:
        """A view has no index in memory."""

    def close(self) -> None:
        """The database is closed with its store."""

    def answer(self, number: int, answer: Answer) -> None:
        """The newest rows; of several views in one lookup the first one returns all of them."""
        shelf = self._shelf
        if number not in self.sections or (shelf.answering and shelf.answering() is answer):
            return
        shelf.answering = weakref.ref(answer)
        missing, heaps = np.flatnonzero(~answer.mask), [answer.heap[: answer.used]]
        for start in range(0, len(missing), GET_KEYS):
            heaps.append(self._answer_some(number, answer, missing[start : start + GET_KEYS]))
            answer.used += len(heaps[-1])
        answer.heap = np.concatenate(heaps)

    def _answer_some(self, number: int, answer: Answer, wanted: I64) -> U8:
        """Put the rows of a few keys into the answer; their heap, which is to follow what it has."""
        shelf, probe = self._shelf, answer.probe
        keys = shelf.keys_of(number, Run(probe.order[wanted], probe.words[wanted], probe.heap))
        values = shelf.database.get_many(keys)
        hits = wanted[np.fromiter(map(bool, values), np.bool_, len(values))]
        run = shelf.rows(list(filter(None, values)))
        variable = np.array(shelf.kind.shape.variable_words, np.int64)
        shift_heap(run.words, 0, len(run), variable, answer.used)
        answer.mask[hits] = True
        answer.words[hits] = run.words
        return run.heap

    def scan(self, number: int, chunk_rows: int) -> Iterator[Run]:
        if number not in self.sections:
            return
        for low, high in self.ranges(number, chunk_rows):
            run = self.scan_range(number, low, high)
            if len(run):
                yield run

    def ranges(self, number: int, chunk_rows: int) -> Iterator[tuple[int, int]]:
        """Ranges of order keys of about `chunk_rows` rows, from the least to the greatest."""
        entry = self.sections[number]
        parts = max(1, entry.rows // max(1, chunk_rows))
        span = entry.max_hash + 1 - entry.min_hash
        for part in range(parts):
            low = entry.min_hash + span * part // parts
            yield low, entry.min_hash + span * (part + 1) // parts

    def count_range(self, number: int, low: int, high: int) -> int:
        """As if order keys were uniform between the least and the greatest."""
        entry = self.sections.get(number)
        if entry is None:
            return 0
        first, end = max(low, entry.min_hash), min(high, entry.max_hash + 1)
        # Rounded down: rounded up, many views of few rows would never seem few enough to be read at once.
        return 0 if first >= end else entry.rows * (end - first) // (entry.max_hash + 1 - entry.min_hash)

    def scan_range(self, number: int, low: int, high: int) -> Run:
        shelf = self._shelf
        if number not in self.sections or self._shown_by_another(number):
            return empty_run(self.width)
        values = shelf.database.values(shelf.bound(number, low), shelf.bound(number, high))
        return self._rows_of(values)

    def rows_of(self, number: int, hashes: U64, turns: I64 | None = None) -> Run:
        shelf = self._shelf
        if number not in self.sections or not len(hashes) or self._shown_by_another(number):
            return empty_run(self.width)
        values = self._whole_values(hashes) if shelf.habit.whole else self._values(number, hashes)
        return self._rows_of(values)

    def _whole_values(self, hashes: U64) -> Iterator[list[bytes]]:
        """The one value of each order key."""
        for start in range(0, len(hashes), GET_KEYS):
            keys = self._shelf.keys_at(hashes[start : start + GET_KEYS])
            yield list(filter(None, self._shelf.database.get_many(keys)))

    def _values(self, number: int, hashes: U64) -> Iterator[list[bytes]]:
        """All values of the order keys, part by part."""
        shelf = self._shelf
        bounds = ((shelf.bound(number, order), shelf.bound(number, order + 1)) for order in hashes.tolist())
        values = shelf.database.values_at(bounds)
        while part := list(islice(values, SCAN_VALUES)):
            yield part

    def _shown_by_another(self, number: int) -> bool:
        """Of the spills of one epoch the first that has a section shows the newest rows of all of them."""
        if not self._spill or self._shelf.kind.appends or self._shelf.habit.whole:
            return False
        return self._shelf.first_flushes.get(number) != self._flushes.start

    def _rows_of(self, parts: Iterable[list[bytes]]) -> Run:
        """The rows of this view among values that come in parts, of which one is in memory at a time."""
        shelf, flushes = self._shelf, self._flushes
        if not shelf.kind.appends:  # where the newest row counts, the flushes before are in it too
            flushes = range(flushes.start, EVERY_FLUSH.stop)
        return concatenated([shelf.rows(values, flushes) for values in parts], shelf.kind.shape)


def _parts(hashes: U64) -> Iterator[tuple[int, int]]:
    """Parts of ordered rows, none of which ends between rows of one order key."""
    start, n = 0, len(hashes)
    while start < n:
        end = min(n, start + _BATCH_ROWS)
        if end < n:
            first = int(np.searchsorted(hashes, hashes[end], "left"))
            end = first if first > start else int(np.searchsorted(hashes, hashes[end], "right"))
        yield start, end
        start = end


def _joined(values: list[bytes]) -> tuple[U64, I64]:
    """The words of values, one after another, and where each begins and ends."""
    sizes = np.fromiter(map(len, values), np.int64, len(values)) // 8
    offsets: I64 = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return np.frombuffer(b"".join(values), np.uint64), offsets


def _cut(data: bytes, offsets: I64) -> list[bytes]:
    bounds = offsets.tolist()
    return list(map(data.__getitem__, map(slice, bounds[:-1], bounds[1:])))


def _listed(keys: np.ndarray) -> list[bytes]:
    items: list[bytes] = keys.view(f"V{keys.shape[1]}").ravel().tolist()
    return items


def _bytes_of(numbers: U64) -> np.ndarray:
    return numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
