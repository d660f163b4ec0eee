"""RocksDB seen as a segment: the rows of one kind, to be looked up and scanned like those of a file.

Rows of a kind whose newest row counts lie under their key: whoever reads gets the newest. Rows of a kind
that appends lie under their seal, one value per order key and seal, and a view takes only its own seals.
A view's sections are as they were when it was made.
Threads: as segments; the answer under way is remembered for one reader at a time.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress

import numpy as np
import rocksdict

from headrace.format.segment import SectionEntry
from headrace.kernels.entries import PREFIX_BYTES, SEAL_WORD, pack_keys, pack_values, unpack_values
from headrace.kernels.lookup import Mask
from headrace.kernels.merge import shift_heap
from headrace.kernels.pack import I64
from headrace.store.contract import FileKind
from headrace.store.kept_merge import concatenated
from headrace.store.rocksdb_files import GET_KEYS, SCAN_VALUES, Database
from headrace.store.rocksdb_sweep import Habit
from headrace.store.run import U8, U64, Run
from headrace.store.segment import Answer, Segment

_BIAS = 1 << 63
EVERY_SEAL = range(1 << 64)
_BATCH_ROWS = 1 << 12


@dataclass
class Shelf:
    """The place of one kind of rows in the database."""

    database: Database
    kind: FileKind
    number: int  # the first byte of its keys
    habit: Habit
    answering: weakref.ReferenceType[Answer] | None = None
    first_seals: dict[int, int] = field(default_factory=dict)  # of each section, in the running epoch

    def bound(self, section: int, order: int) -> bytes:
        """Below every key of that section and order key, above every key before; `order` may be 2**64."""
        number = ((self._place(section) + _BIAS) << 64) + order
        return (self.number << 128 | number).to_bytes(PREFIX_BYTES, "big")

    def _place(self, section: int) -> int:
        return 0 if self.habit.dated else section

    def put(self, section: int, run: Run, seal: int) -> None:
        """Write an ordered run, in batches that a write buffer has room for."""
        for start, end in _parts(run.hashes):
            part = Run(run.hashes[start:end], run.words[start:end], run.heap)
            self._put(self._place(section), part, seal)

    def _put(self, section: int, run: Run, seal: int) -> None:
        grouped = self.kind.appends or self.habit.whole
        keys, starts = self._group_keys(section, run, seal) if grouped else self._keys(section, run)
        variable = np.array(self.kind.shape.variable_words, np.int64)
        words = np.ascontiguousarray(run.words)
        offsets, data = pack_values(run.hashes, words, run.heap, variable, starts, np.uint64(seal))
        batch = rocksdict.WriteBatch(raw_mode=True)
        deque(map(batch.put, keys, _cut(data.tobytes(), 8 * offsets)), maxlen=0)
        self.database.write(batch)

    def _group_keys(self, section: int, run: Run, seal: int) -> tuple[list[bytes], I64]:
        """One key per order key, and where its rows begin; the newest whole one takes the others' place."""
        changes = np.flatnonzero(np.diff(run.hashes)) + 1
        starts: I64 = np.concatenate([[0], changes, [len(run)]]).astype(np.int64)
        size = PREFIX_BYTES if self.habit.whole else PREFIX_BYTES + 8
        held = np.empty((len(starts) - 1, size), np.uint8)
        held[:, 0] = self.number
        held[:, 1:9] = _bytes_of(np.array([section + _BIAS], np.uint64))
        held[:, 9:17] = _bytes_of(run.hashes[starts[:-1]])
        if not self.habit.whole:
            held[:, 17:] = _bytes_of(np.array([seal], np.uint64))
        return _listed(held), starts

    def keys_at(self, hashes: U64) -> list[bytes]:
        """The keys of whole order keys."""
        held = np.empty((len(hashes), PREFIX_BYTES), np.uint8)
        held[:, 0] = self.number
        held[:, 1:9] = _bytes_of(np.array([_BIAS], np.uint64))
        held[:, 9:17] = _bytes_of(hashes)
        return _listed(held)

    def _keys(self, section: int, run: Run) -> tuple[list[bytes], I64]:
        return self.keys_of(section, run), np.arange(len(run) + 1, dtype=np.int64)

    def keys_of(self, section: int, probe: Run) -> list[bytes]:
        """The keys of rows, or of a probe, whose newest row counts."""
        shape = self.kind.shape
        variable: Mask = np.zeros(shape.key_width, np.bool_)
        variable[list(shape.variable_key_words)] = True
        words = np.ascontiguousarray(probe.words)
        offsets, data = pack_keys(
            self.number, np.uint64(section + _BIAS), probe.hashes, words, probe.heap, variable
        )
        return _cut(data.tobytes(), offsets)

    def rows(self, values: list[bytes], seals: range = EVERY_SEAL) -> Run:
        """The rows of those values that were put with such a seal."""
        shape = self.kind.shape
        data, offsets = _joined(values)
        if seals != EVERY_SEAL:
            of_values = data[offsets[:-1] + SEAL_WORD]
            mine = (of_values >= np.uint64(seals.start)) & (of_values <= np.uint64(seals.stop - 1))
            if not mine.all():
                data, offsets = _joined(list(compress(values, mine.tolist())))
        return Run(*unpack_values(data, offsets, shape.width, np.array(shape.variable_words, np.int64)))


class RocksSegment(Segment):
    """What one kind had when the view was made; `seals` is the range of seals that it shows."""

    def __init__(
        self, shelf: Shelf, sections: Mapping[int, SectionEntry], seals: range, *, spill: bool = False
    ) -> None:
        self.path, self.kind, self.width = (
            str(shelf.database.folder),
            shelf.kind.name,
            shelf.kind.shape.width,
        )
        self.checksum = 0
        self.sections = sections
        self.size = sum(entry.index for entry in sections.values())  # as it would be in memory
        self._shelf, self._seals, self._spill = shelf, seals, spill

    def release(self, number: int) -> None:
        """Its memory is the database's cache."""

    def close(self) -> None:
        """The database is closed with its store."""

    def answer(self, number: int, answer: Answer) -> None:
        """The newest rows; of several views in one lookup the first one asked knows all that there is."""
        shelf = self._shelf
        if number not in self.sections or (shelf.answering and shelf.answering() is answer):
            return
        shelf.answering = weakref.ref(answer)
        asked, heaps = np.flatnonzero(~answer.mask), [answer.heap[: answer.used]]
        for start in range(0, len(asked), GET_KEYS):
            heaps.append(self._answer_some(number, answer, asked[start : start + GET_KEYS]))
            answer.used += len(heaps[-1])
        answer.heap = np.concatenate(heaps)

    def _answer_some(self, number: int, answer: Answer, asked: I64) -> U8:
        """Put the rows of a few keys into the answer; their heap, which is to follow what it has."""
        shelf, probe = self._shelf, answer.probe
        keys = shelf.keys_of(number, Run(probe.hashes[asked], probe.words[asked], probe.heap))
        values = shelf.database.get_many(keys)
        found = asked[np.fromiter(map(bool, values), np.bool_, len(values))]
        run = shelf.rows(list(filter(None, values)))
        variable = np.array(shelf.kind.shape.variable_words, np.int64)
        shift_heap(run.words, 0, len(run), variable, answer.used)
        answer.mask[found] = True
        answer.words[found] = run.words
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
            return self._empty()
        values = shelf.database.values(shelf.bound(number, low), shelf.bound(number, high))
        return self._rows_of(values)

    def rows_of(self, number: int, hashes: U64, turns: I64 | None = None) -> Run:
        shelf = self._shelf
        if number not in self.sections or not len(hashes) or self._shown_by_another(number):
            return self._empty()
        values = self._whole_values(hashes) if shelf.habit.whole else self._values(number, hashes)
        return self._rows_of(values)

    def _whole_values(self, hashes: U64) -> Iterator[list[bytes]]:
        """The one value of each order key."""
        for start in range(0, len(hashes), GET_KEYS):
            keys = self._shelf.keys_at(hashes[start : start + GET_KEYS])
            yield list(filter(None, self._shelf.database.get_many(keys)))

    def _values(self, number: int, hashes: U64) -> Iterator[list[bytes]]:
        """All values of the order keys, one after another: RocksDB has no bulk read of prefixes."""
        shelf, values, cursor = self._shelf, list[bytes](), self._shelf.database.iterate()
        for order in hashes.tolist():
            low, high = shelf.bound(number, order), shelf.bound(number, order + 1)
            cursor.seek(low)
            while cursor.valid() and cursor.key() < high:
                values.append(cursor.value())
                cursor.next()
            if len(values) >= SCAN_VALUES:
                yield values
                values = []
        yield values

    def _shown_by_another(self, number: int) -> bool:
        """Of the spills of one epoch the first that has a section shows the newest rows of all of them."""
        if not self._spill or self._shelf.kind.appends or self._shelf.habit.whole:
            return False
        return self._shelf.first_seals.get(number) != self._seals.start

    def _rows_of(self, parts: Iterable[list[bytes]]) -> Run:
        """The rows of this view among values that come in parts, of which one is in memory at a time."""
        shelf, seals = self._shelf, self._seals
        if not shelf.kind.appends:  # where the newest row counts, the seals before are in it too
            seals = range(seals.start, EVERY_SEAL.stop)
        return concatenated([shelf.rows(values, seals) for values in parts], shelf.kind.shape)


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
    found: list[bytes] = keys.view(f"V{keys.shape[1]}").ravel().tolist()
    return found


def _bytes_of(numbers: U64) -> np.ndarray:
    return numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
