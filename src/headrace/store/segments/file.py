"""A segment in a file: open, look up, scan.

Invariants: every byte that an answer depends on was verified first; wrong bytes raise `StateCorrupt` with
the file's name. Resident is the index of each section in use (`memory_bytes`); rows are never mapped.
A damaged local copy is opened again, once per read, where the file has an original elsewhere.
Threads: all reads from any thread at the same time; `close` waits for none of them (`files.opened`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from headrace.errors import StateCorrupt, StateMissing
from headrace.files.logical import LogicalFile
from headrace.files.opened import OpenFile
from headrace.files.residency import resident_share
from headrace.format import segment as form
from headrace.format.segment import Footer, SectionEntry
from headrace.kernels.core.pack import bad_block, unpack
from headrace.kernels.segments.lookup import announce, fetch, locate
from headrace.kernels.sessions.rows import fetch_all
from headrace.row.arrays import I64, U8, U64, Flags
from headrace.row.run import Run
from headrace.store.segments.block_index import BlockIndex
from headrace.store.segments.footer import footer_of
from headrace.store.segments.indexes import Indexes, read_words
from headrace.store.segments.reader import Answer, Found, Prepared, empty_run

_VERIFY_ROWS = 1 << 16  # read at a time
_SCANNED_BYTES = 1 << 18  # a read of this size is a part of a scan
T = TypeVar("T")


class Origin(Protocol):
    """Where the bytes of a file come from, by file id."""

    def open_again(self, file_id: str, damaged: OpenFile) -> OpenFile | None:
        """Opens new bytes for a damaged copy; None where the bytes are no copy."""

    def open_instead(self, file_id: str, evicted: OpenFile) -> OpenFile | None:
        """Opens a file whose local copy was evicted; None where it stays open."""


class NoOrigin:
    """The file is no copy of another."""

    def open_again(self, file_id: str, damaged: OpenFile) -> OpenFile | None:
        return None

    def open_instead(self, file_id: str, evicted: OpenFile) -> OpenFile | None:
        return None


class SegmentFile:
    """A segment in an open file."""

    end = b""  # footer and trailer
    label = ""  # what the store calls the file, where the store has a name for it

    def __init__(
        self,
        file: LogicalFile,
        opened: OpenFile,
        width: int,
        keys: Sequence[int],
        footer: Footer,
        origin: Origin,
    ) -> None:
        self.file = file
        self.kind = file.kind
        self.width = width
        self.sections: Mapping[int, SectionEntry] = {entry.slice: entry for entry in footer.sections}
        self._variable: I64 = np.array(footer.variable_words, np.int64)
        self._variable_key: Flags = np.zeros(width, np.bool_)
        self._variable_key[list(keys)] = True
        self._indexes = Indexes()
        self._lock = threading.Lock()
        self._bytes, self._origin = opened, origin

    @classmethod
    def open(
        cls,
        path: str | Path,
        width: int,
        variable_key_words: Sequence[int],
        *,
        checksum: int | None = None,
        kind: str = "rows",
    ) -> SegmentFile:
        """Opens a file that belongs to no partition; its path is its id."""
        opened = OpenFile.at(path)
        return cls.over(opened, str(path), width, variable_key_words, checksum=checksum, kind=kind)

    @classmethod
    def over(
        cls,
        opened: OpenFile,
        file_id: str,
        width: int,
        variable_key_words: Sequence[int],
        *,
        checksum: int | None = None,
        kind: str = "rows",
        origin: Origin | None = None,
        end: bytes | None = None,
    ) -> SegmentFile:
        """Verifies header, footer and trailer; a section's index is read when first used.

        With `checksum`, the file must be the very one that a manifest names.
        """
        try:
            with opened.reading():
                size, footer, end = footer_of(opened, width, checksum, end)
            if checksum is not None and checksum != footer.checksum:
                raise form.corrupt(opened.where, "it is intact, but not the file that the manifest names")
            if not set(variable_key_words) <= set(footer.variable_words):
                raise form.other_layout(opened.where, "its variable words are not those of the operator")
        except BaseException:
            opened.close()
            raise
        file = LogicalFile(file_id, kind, size, footer.checksum)
        segment = cls(file, opened, width, variable_key_words, footer, origin or NoOrigin())
        segment.end = end
        return segment

    @property
    def size(self) -> int:
        return self.file.size

    @cached_property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.sections.values())

    @cached_property
    def last(self) -> int:
        """The number of its last section."""
        return max(self.sections)

    @property
    def memory_bytes(self) -> int:
        """Memory of its indexes, and of what is present of a file that is elsewhere."""
        return self._indexes.nbytes + self._bytes.memory_bytes

    @property
    def indexes(self) -> Mapping[int, BlockIndex]:
        """The indexes in memory, by section."""
        return self._indexes.loaded

    def settle(self) -> None:
        """Releases a local copy that was evicted, so that its disk is free; a closed file has none."""
        with suppress(ValueError):
            self._current()

    def release(self, number: int) -> None:
        """Frees the memory of a section's index; the next use reads it again."""
        self._indexes.release(number)

    def close(self) -> None:
        self._indexes.clear()
        self._bytes.close()

    @property
    def is_far(self) -> bool:
        """Whether reads may have to fetch ranges from elsewhere."""
        return self._bytes.is_partial

    def prepare(self, number: int, hashes: U64) -> Future[Prepared]:
        """Fetches the pages and blocks of ordered hashes, in another thread."""
        return self._bytes.beside(
            lambda: self._reading(partial(self._prepare, number=number, hashes=hashes))
        )

    def _prepare(self, opened: OpenFile, number: int, hashes: U64) -> Prepared:
        answered: Flags = np.zeros(len(hashes), np.bool_)
        index = self._indexes.of_hashes(self.sections[number], opened, hashes, answered)
        if index is not None:
            last = np.uint64(index.last)
            blocks = locate(hashes, answered, index.firsts, last, index.row_starts, index.filters)
            _ensure_blocks(opened, index, blocks)
        return (id(self), number), index

    def lookup(self, number: int, probe: Run, todo: Flags | None = None) -> Found:
        """Rows of the probe's keys in slice `number`; where `todo` is given, of those keys only."""
        answer = Answer(probe, self.width)
        if todo is not None:
            answer.mask[~todo] = True
        self.answer(number, answer)
        result = answer.result()
        if todo is not None:
            result.mask[~todo] = False
        return result

    def answer(self, number: int, answer: Answer) -> None:
        """Adds the rows of keys that `answer` has not found yet."""
        if number not in self.sections:
            return
        self._reading(lambda opened: self._answer(opened, number, answer))

    def _answer(self, opened: OpenFile, number: int, answer: Answer) -> None:
        probe, entry = answer.probe, self.sections[number]
        key = (id(self), number)
        if key in answer.prepared:
            index = answer.prepared[key]
        else:
            index = self._indexes.of_hashes(entry, opened, probe.order, answer.mask)
        if index is None:
            return
        last = np.uint64(index.last)
        blocks = locate(probe.order, answer.mask, index.firsts, last, index.row_starts, index.filters)
        _ensure_blocks(opened, index, blocks)
        buffer: U64 = np.empty(index.read_words, np.uint64)
        answer.read(*announce(opened.fd, blocks, index.offsets, buffer.nbytes))
        bad, answer.heap, answer.used = fetch(
            opened.fd, probe.order, probe.words, probe.heap, self._variable_key, self._variable, blocks,
            index.offsets, index.row_starts, index.checks, buffer,
            answer.mask, answer.words, answer.heap, answer.used,
        )  # fmt: skip
        self._check_block(opened, index, bad)

    def _check_block(self, opened: OpenFile, index: BlockIndex, bad: int) -> None:
        """Raises if a kernel met a bad block; -1 means none."""
        if bad >= 0:
            self._read(opened, index, bad, bad + 1)
            raise self._corrupt(f"block {bad} could not be verified")

    def scan(self, number: int, chunk_rows: int) -> Iterator[Run]:
        """All rows of a slice as ordered runs of about `chunk_rows` rows."""
        if number not in self.sections:
            return
        entry = self.sections[number]
        with self._bytes.use():  # the segment may be closed before the last chunk
            for index in self._index_parts(entry):
                first, blocks = 0, len(index.firsts)
                while first < blocks:
                    end = index.blocks_of_rows(first, chunk_rows)
                    yield self._reading(partial(self._rows, index=index, first=first, end=end))
                    first = end

    def _index_parts(self, entry: SectionEntry) -> Iterator[BlockIndex]:
        """The index of a whole section, in parts where the file is elsewhere."""
        groups = self._reading(lambda opened: self._indexes.groups(entry, opened))
        for pages in groups:
            yield self._reading(partial(self._indexes.of_pages, entry, pages=pages))

    def verify(self) -> None:
        """Reads all blocks; raises `StateCorrupt` where one fails its checksum."""
        with self._bytes.reading() as opened:
            for entry in self.sections.values():
                for pages in self._indexes.groups(entry, opened):
                    index = self._indexes.of_pages(entry, opened, pages)
                    first, blocks = 0, len(index.firsts)
                    while first < blocks:
                        end = index.blocks_of_rows(first, _VERIFY_ROWS)
                        self._read(opened, index, first, end)
                        first = end

    def count_range(self, number: int, low: int, high: int) -> int:
        """About how many rows have `low <= hash < high`, from the index alone; adds up over ranges."""
        if number not in self.sections:
            return 0
        entry = self.sections[number]
        if entry.lies_in(low, high):
            return entry.rows
        below = self._reading(lambda opened: self._indexes.counter(entry, opened))
        return below(high) - below(low)

    def scan_range(self, number: int, low: int, high: int) -> Run:
        """The rows with `low <= hash < high` as one ordered run; `high` may be 2**64."""
        if number not in self.sections:
            return empty_run(self.width)
        return self._reading(lambda opened: self._scan_range(opened, number, low, high))

    def _scan_range(self, opened: OpenFile, number: int, low: int, high: int) -> Run:
        entry = self.sections[number]
        index = self._indexes.of_range(entry, opened, low, high)
        if index is None:
            return empty_run(self.width)
        if entry.lies_in(low, high):
            return self._rows(opened, index, 0, len(index.firsts))
        first, end = index.blocks_between(low, high)
        if first >= end:
            return empty_run(self.width)
        run = self._rows(opened, index, first, end)
        a, b = np.searchsorted(run.order, np.array([low, high - 1], np.uint64), "left")
        b += np.searchsorted(run.order[b:], np.uint64(high - 1), "right")
        return Run(run.order[a:b], run.words[a:b], run.heap)

    def rows_of(self, number: int, hashes: U64, turns: I64 | None = None) -> Run:
        """All rows of ordered, distinct hashes as one ordered run.

        Neighbours share a read of their block. With `turns`, each hash is read by itself, in that order.
        """
        if number not in self.sections or not len(hashes):
            return empty_run(self.width)
        of_row, words, heap = self._reading(lambda opened: self._fetch_all(opened, number, hashes, turns))
        if turns is not None:
            by_hash = np.argsort(of_row, kind="stable")
            of_row, words = of_row[by_hash], words[by_hash]
        return Run(hashes[of_row], words, heap)

    def resident_share(self) -> float:
        """The share of its bytes that the page cache has; 0 of a file that is elsewhere."""
        return self._reading(
            lambda opened: 0.0 if opened.is_partial else resident_share(opened.fd, self.size)
        )

    def _fetch_all(
        self, opened: OpenFile, number: int, hashes: U64, turns: I64 | None
    ) -> tuple[I64, U64, U8]:
        answered: Flags = np.zeros(len(hashes), np.bool_)
        index = self._indexes.of_hashes(self.sections[number], opened, hashes, answered)
        if index is None:
            run = empty_run(self.width)
            return np.empty(0, np.int64), run.words, run.heap
        last, buffer = np.uint64(index.last), np.empty(index.read_words, np.uint64)
        blocks = locate(hashes, answered, index.firsts, last, index.row_starts, index.filters)
        _ensure_blocks(opened, index, blocks)
        place = (index.offsets, index.row_starts, index.checks, buffer, self.width)
        order: I64 = np.empty(0, np.int64) if turns is None else turns
        bad, of_row, words, heap = fetch_all(opened.fd, hashes, self._variable, blocks, *place, order)
        self._check_block(opened, index, bad)
        return of_row, words, heap

    def _reading(self, read: Callable[[OpenFile], T]) -> T:
        """Reads from the file; after damage once more, from a new copy."""
        opened = self._current()
        try:
            with opened.reading():
                return read(opened)
        except StateCorrupt:
            if not self._reopen(opened):
                raise
        with self._bytes.reading() as fresh:
            return read(fresh)

    def _reopen(self, damaged: OpenFile) -> bool:
        with self._lock:
            if self._bytes is damaged:
                fresh = self._origin.open_again(self.file.id, damaged)
                if fresh is None:
                    return False
                self._bytes = fresh
                damaged.close()
            return True

    def _current(self) -> OpenFile:
        """The file to read from."""
        opened = self._bytes
        with opened.use():
            is_evicted = opened.is_evicted
        return self._instead(opened) if is_evicted else opened

    def _instead(self, evicted: OpenFile) -> OpenFile:
        """The file to read from once its local copy was evicted; the old bytes, if it is gone elsewhere."""
        with self._lock:
            if self._bytes is evicted:
                with suppress(StateMissing):
                    fresh = self._origin.open_instead(self.file.id, evicted)
                    if fresh is not None:
                        self._bytes = fresh
                        evicted.close()
            return self._bytes

    def _rows(self, opened: OpenFile, index: BlockIndex, first: int, end: int) -> Run:
        data = self._read(opened, index, first, end)
        rows = int(index.row_starts[end] - index.row_starts[first])
        hashes: U64 = np.empty(rows, np.uint64)
        words: U64 = np.empty((rows, self.width), np.uint64)
        heap: U64 = np.empty(data.size - rows * (self.width + 1), np.uint64)
        unpack(data, index.offsets, index.row_starts, first, end, self._variable, hashes, words, heap)
        return Run(hashes, words, heap.view(np.uint8))

    def _read(self, opened: OpenFile, index: BlockIndex, first: int, end: int) -> U64:
        start, stop = int(index.offsets[first]), int(index.offsets[end])
        data = read_words(opened, start, (stop - start) // 8, once=True)
        if opened.is_partial and stop - start >= _SCANNED_BYTES:  # a scan: the next chunk is on its way
            ahead = min(2 * stop - start, int(index.offsets[-1]))
            opened.announce(np.array([stop], np.int64), np.array([ahead], np.int64))
        bad = bad_block(data, index.offsets, index.checks, first, end)
        if bad >= 0:
            raise self._corrupt(f"the block at byte {index.offsets[bad]} fails its checksum")
        return data

    def _corrupt(self, problem: str) -> StateCorrupt:
        return form.corrupt(self._bytes.where, problem)


def _ensure_blocks(opened: OpenFile, index: BlockIndex, blocks: I64) -> None:
    """Makes the located blocks of ordered probes present."""
    if opened.is_partial:
        needed = np.unique(blocks[blocks >= 0])
        opened.ensure(index.offsets[needed], index.offsets[needed + 1])
