"""Reads segments: open, look up, scan.

Invariants: every byte that an answer depends on was verified first; wrong bytes raise `StateCorrupt` with
the file's name. Resident is the index of each section in use (`memory_bytes`); rows are never mapped.
Threads: all reads from any thread at the same time; `close` waits for none of them, the file stays open
until the last read ends. A segment that nobody holds any more closes itself: a store drops segments that a
compaction still reads, so no one of the two could say when.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path

import numpy as np

from headrace.errors import StateMissing
from headrace.format import segment as form
from headrace.format.segment import Footer, SectionEntry
from headrace.kernels.checksum import xxh64
from headrace.kernels.lookup import Mask, fetch, locate
from headrace.kernels.pack import I64, bad_block, unpack
from headrace.kernels.session_rows import fetch_all
from headrace.store.block_index import BlockIndex
from headrace.store.run import U8, U64, Run

_TAIL_BYTES = 512  # the end of a file, with the footer of a few sections


@dataclass(frozen=True)
class Found:
    """Answers to a probe: which keys were found, and their rows (zero where not found)."""

    mask: Mask  # [n]
    words: U64  # [n, width]
    heap: U8


class _File:
    """A file descriptor that outlives `close` until the reads under way are done."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._lock = threading.Lock()
        self._users = 1

    @contextmanager
    def use(self) -> Iterator[int]:
        with self._lock:
            if self._users == 0:
                raise ValueError(f"segment {self._path} is closed")
            self._users += 1
        try:
            yield self._fd
        finally:
            self.release()

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                os.close(self._fd)

    def __del__(self) -> None:
        if self._users:  # never closed, and no read can be under way: a reader holds this object
            os.close(self._fd)


class Segment:
    """An open segment."""

    memory_bytes = 0  # of its indexes
    label = ""  # what the store calls the file, where the store has a name for it

    def __init__(
        self, path: str, fd: int, size: int, width: int, keys: Sequence[int], footer: Footer, kind: str
    ) -> None:
        self.path = path
        self.kind = kind  # what its rows are to the store (`store.contract.FileKind`)
        self.size = size
        self.width = width
        self.checksum = footer.checksum
        self.sections: Mapping[int, SectionEntry] = {entry.slice: entry for entry in footer.sections}
        self._variable: I64 = np.array(footer.variable_words, np.int64)
        self._variable_key: Mask = np.zeros(width, np.bool_)
        self._variable_key[list(keys)] = True
        self._indexes: dict[int, BlockIndex] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._file = _File(fd, path)  # last: from here on the descriptor is its own

    @classmethod
    def open(
        cls,
        path: str | Path,
        width: int,
        variable_key_words: Sequence[int],
        *,
        checksum: int | None = None,
        kind: str = "rows",
    ) -> Segment:
        """Open and verify header, footer and trailer; a section's index is read when first used.

        With `checksum`, the file must be the very one that a manifest names.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            hint = "put the file back, or go back to an older version that does not name it"
            raise StateMissing(f"segment {path} is not there", hint=hint) from None
        try:
            size = os.fstat(fd).st_size
            form.check_header(path, os.pread(fd, form.HEADER_BYTES, 0), width)
            tail = os.pread(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
            offset, words, check = form.footer_place(path, tail[-form.TRAILER_BYTES :], size)
            at = len(tail) - form.TRAILER_BYTES - 8 * words
            body = tail[at : at + 8 * words] if at >= 0 else os.pread(fd, 8 * words, offset)
            footer = form.parse_footer(path, body, offset, check)
            if checksum is not None and checksum != footer.checksum:
                raise form.corrupt(path, "it is intact, but not the file that the manifest names")
            if not set(variable_key_words) <= set(footer.variable_words):
                raise form.corrupt(path, "its variable words are not those of the operator")
            return cls(str(path), fd, size, width, variable_key_words, footer, kind)
        except BaseException:
            os.close(fd)
            raise

    @cached_property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.sections.values())

    @cached_property
    def last(self) -> int:
        """The number of its last section."""
        return max(self.sections)

    def release(self, number: int) -> None:
        """Give back the memory of a slice's index; it is read again when used again."""
        with self._lock:
            index = self._indexes.pop(number, None)
            self.memory_bytes -= 0 if index is None else index.nbytes

    def close(self) -> None:
        with self._lock:
            closed, self._closed = self._closed, True
            self._indexes.clear()
            self.memory_bytes = 0
        if not closed:
            self._file.release()

    def lookup(self, number: int, probe: Run, todo: Mask | None = None) -> Found:
        """Rows of the probe's keys in slice `number`; where `todo` is given, of those keys only."""
        answer = Answer(probe, self.width)
        if todo is not None:
            answer.mask[~todo] = True
        self.answer(number, answer)
        found = answer.found()
        if todo is not None:
            found.mask[~todo] = False
        return found

    def answer(self, number: int, answer: Answer) -> None:
        """Add what this segment knows about the keys that `answer` has not found yet."""
        if number not in self.sections:
            return
        probe = answer.probe
        with self._file.use() as fd:
            index = self._index(number, fd)
            last = np.uint64(index.last)
            blocks = locate(probe.hashes, answer.mask, index.firsts, last, index.row_starts, index.filters)
            buffer: U64 = np.empty(index.read_words, np.uint64)
            bad, answer.heap, answer.used = fetch(
                fd, probe.hashes, probe.words, probe.heap, self._variable_key, self._variable, blocks,
                index.offsets, index.row_starts, index.checks, buffer,
                answer.mask, answer.words, answer.heap, answer.used,
            )  # fmt: skip
            if bad >= 0:
                self._read(fd, index, bad, bad + 1)
                raise form.corrupt(self.path, f"block {bad} of slice {number} could not be verified")

    def scan(self, number: int, chunk_rows: int) -> Iterator[Run]:
        """All rows of a slice as ordered runs of about `chunk_rows` rows."""
        if number not in self.sections:
            return
        with self._file.use() as fd:
            index = self._index(number, fd)
            first, blocks = 0, len(index.firsts)
            while first < blocks:
                end = index.blocks_of_rows(first, chunk_rows)
                yield self._rows(fd, index, first, end)
                first = end

    def count_range(self, number: int, low: int, high: int) -> int:
        """About how many rows have `low <= hash < high`, from the index alone; adds up over ranges."""
        if number not in self.sections:
            return 0
        entry = self.sections[number]
        if entry.lies_in(low, high):
            return entry.rows
        with self._file.use() as fd:
            index = self._index(number, fd)
        return index.rows_below(high) - index.rows_below(low)

    def scan_range(self, number: int, low: int, high: int) -> Run:
        """The rows with `low <= hash < high` as one ordered run; `high` may be 2**64."""
        if number not in self.sections:
            return self._empty()
        with self._file.use() as fd:
            index = self._index(number, fd)
            if self.sections[number].lies_in(low, high):
                return self._rows(fd, index, 0, len(index.firsts))
            first, end = index.blocks_between(low, high)
            if first >= end:
                return self._empty()
            run = self._rows(fd, index, first, end)
        a, b = np.searchsorted(run.hashes, np.array([low, high - 1], np.uint64), "left")
        b += np.searchsorted(run.hashes[b:], np.uint64(high - 1), "right")
        return Run(run.hashes[a:b], run.words[a:b], run.heap)

    def rows_of(self, number: int, hashes: U64, turns: I64 | None = None) -> Run:
        """All rows of the hashes, which are ordered and distinct, as one ordered run.

        Neighbours share a read of their block, unless each is read by itself, in the order of `turns`.
        """
        if number not in self.sections or not len(hashes):
            return self._empty()
        with self._file.use() as fd:
            index = self._index(number, fd)
            asked: Mask = np.zeros(len(hashes), np.bool_)
            last, buffer = np.uint64(index.last), np.empty(index.read_words, np.uint64)
            blocks = locate(hashes, asked, index.firsts, last, index.row_starts, index.filters)
            place = (index.offsets, index.row_starts, index.checks, buffer, self.width)
            order: I64 = np.empty(0, np.int64) if turns is None else turns
            bad, of_row, words, heap = fetch_all(fd, hashes, self._variable, blocks, *place, order)
            if bad >= 0:
                self._read(fd, index, bad, bad + 1)
                raise form.corrupt(self.path, f"block {bad} of slice {number} could not be verified")
        if turns is not None:
            by_hash = np.argsort(of_row, kind="stable")
            of_row, words = of_row[by_hash], words[by_hash]
        return Run(hashes[of_row], words, heap)

    def _empty(self) -> Run:
        return Run(np.empty(0, np.uint64), np.empty((0, self.width), np.uint64), np.empty(0, np.uint8))

    def _rows(self, fd: int, index: BlockIndex, first: int, end: int) -> Run:
        data = self._read(fd, index, first, end)
        rows = int(index.row_starts[end] - index.row_starts[first])
        hashes: U64 = np.empty(rows, np.uint64)
        words: U64 = np.empty((rows, self.width), np.uint64)
        heap: U64 = np.empty(data.size - rows * (self.width + 1), np.uint64)
        unpack(data, index.offsets, index.row_starts, first, end, self._variable, hashes, words, heap)
        return Run(hashes, words, heap.view(np.uint8))

    def _read(self, fd: int, index: BlockIndex, first: int, end: int) -> U64:
        start, stop = int(index.offsets[first]), int(index.offsets[end])
        data = self._read_words(fd, start, (stop - start) // 8)
        bad = bad_block(data, index.offsets, index.checks, first, end)
        if bad >= 0:
            raise form.corrupt(self.path, f"the block at byte {index.offsets[bad]} fails its checksum")
        return data

    def _read_words(self, fd: int, start: int, words: int) -> U64:
        data: U64 = np.empty(words, np.uint64)
        left = memoryview(data).cast("B")  # type: ignore[arg-type]
        while left:
            done = os.preadv(fd, [left], start)
            if done == 0:
                raise form.corrupt(self.path, f"it ends at byte {start}, inside a section")
            left, start = left[done:], start + done
        return data

    def _index(self, number: int, fd: int) -> BlockIndex:
        with self._lock:
            if number not in self._indexes:
                self._indexes[number] = self._load_index(self.sections[number], fd)
                self.memory_bytes += self._indexes[number].nbytes
            return self._indexes[number]

    def _load_index(self, entry: SectionEntry, fd: int) -> BlockIndex:
        data = self._read_words(fd, entry.index, entry.index_words)
        if int(xxh64(data)) != entry.check:
            raise form.corrupt(self.path, f"the index of slice {entry.slice} fails its checksum")
        return BlockIndex.of(entry, data)


def index_bytes(segments: Iterable[Segment]) -> int:
    """What the indexes of segments take; asked for in every batch, whatever their number."""
    return sum(map(attrgetter("memory_bytes"), segments))


class Answer:
    """What is known so far about the keys of one probe; segments add to it, newest first."""

    def __init__(self, probe: Run, width: int) -> None:
        self.probe = probe
        self.mask: Mask = np.zeros(len(probe), np.bool_)
        self.words: U64 = np.zeros((len(probe), width), np.uint64)
        self.heap: U8 = np.empty(0, np.uint8)
        self.used = 0

    def found(self) -> Found:
        return Found(self.mask, self.words, self.heap[: self.used])


def lookup_all(segments: Sequence[Segment], number: int, probe: Run) -> Found:
    """The newest row of each key of an ordered probe; `segments` newest first."""
    answer = Answer(probe, segments[0].width if segments else probe.words.shape[1])
    for segment in segments:
        if answer.mask.all():
            break
        segment.answer(number, answer)
    return answer.found()
