"""The indexes of one segment: whole ones in memory, or the pages that a read touches.

A local file has each section's whole index in memory from its first use. Of a file that is elsewhere only
directories stay; the pages that a read touches are joined to an index for that read.

Invariants: every index and directory was verified. `nbytes` is the memory of what stays.
Threads: any; the lock is held while an index is loaded, so that it is loaded once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import numpy as np

from headrace.files.opened import OpenFile
from headrace.format.segment import SectionEntry, corrupt
from headrace.kernels.core.checksum import xxh64
from headrace.kernels.segments.pages import join_pages, read_pages
from headrace.row.arrays import I64, U64, Flags
from headrace.store.segments.block_index import BlockIndex, rows_below
from headrace.store.segments.index_pages import Columns, Directory

GROUP_PAGES = 128  # of a scan at a time: some 16 MiB of rows
_NO_PAGES: I64 = np.empty(0, np.int64)


class Indexes:
    """The indexes of the sections of one segment."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._whole: dict[int, BlockIndex] = {}
        self._directories: dict[int, Directory] = {}
        self._lock = threading.Lock()

    @property
    def loaded(self) -> dict[int, BlockIndex]:
        """The whole indexes in memory, by section."""
        with self._lock:
            return dict(self._whole)

    def release(self, number: int) -> None:
        """Frees the memory of a section's index."""
        with self._lock:
            freed = [self._whole.pop(number, None), self._directories.pop(number, None)]
            self.nbytes -= sum(each.nbytes for each in freed if each is not None)

    def clear(self) -> None:
        with self._lock:
            self._whole.clear()
            self._directories.clear()
            self.nbytes = 0

    # ── the index for one read ───────────────────────────────────────────────────────────────

    def of_hashes(
        self, entry: SectionEntry, opened: OpenFile, hashes: U64, done: Flags
    ) -> BlockIndex | None:
        """The index of the blocks that ordered hashes may be in, except those that are done."""
        if self._is_whole(entry, opened):
            return self._loaded(entry, opened)
        pages = self._directory(entry, opened).touched(hashes[~done])
        return self.of_pages(entry, opened, pages) if len(pages) else None

    def of_range(self, entry: SectionEntry, opened: OpenFile, low: int, high: int) -> BlockIndex | None:
        """The index of the blocks that may hold hashes in `[low, high)`."""
        if self._is_whole(entry, opened):
            return self._loaded(entry, opened)
        pages = self._directory(entry, opened).between(low, high)
        return self.of_pages(entry, opened, pages) if len(pages) else None

    def groups(self, entry: SectionEntry, opened: OpenFile) -> list[I64]:
        """The pages of a whole section, in groups for `of_pages`."""
        if self._is_whole(entry, opened):
            return [_NO_PAGES]
        pages = np.arange(entry.pages, dtype=np.int64)
        return np.split(pages, np.arange(GROUP_PAGES, entry.pages, GROUP_PAGES))

    def of_pages(self, entry: SectionEntry, opened: OpenFile, pages: I64) -> BlockIndex:
        """The index of ordered pages; of all of them where the whole index is in memory."""
        if self._is_whole(entry, opened):
            return self._loaded(entry, opened)
        return _joined(entry, opened, self._directory(entry, opened), pages)

    def counter(self, entry: SectionEntry, opened: OpenFile) -> Callable[[int], int]:
        """A function that estimates how many rows have a smaller hash."""
        if self._is_whole(entry, opened):
            return self._loaded(entry, opened).rows_below
        pages = self._directory(entry, opened)
        return lambda hashed: rows_below(pages.firsts, pages.row_starts, pages.last, hashed)

    # ── what stays ───────────────────────────────────────────────────────────────────────────

    def _is_whole(self, entry: SectionEntry, opened: OpenFile) -> bool:
        """Whether the whole index is in memory, or belongs there."""
        return not entry.directory or not opened.is_partial or entry.slice in self._whole

    def _loaded(self, entry: SectionEntry, opened: OpenFile) -> BlockIndex:
        with self._lock:
            if entry.slice not in self._whole:
                index = _whole(entry, opened)
                self._whole[entry.slice] = index
                self.nbytes += index.nbytes
            return self._whole[entry.slice]

    def _directory(self, entry: SectionEntry, opened: OpenFile) -> Directory:
        with self._lock:
            if entry.slice not in self._directories:
                directory = _directory(entry, opened)
                self._directories[entry.slice] = directory
                self.nbytes += directory.nbytes
            return self._directories[entry.slice]


def ensure(opened: OpenFile, *ranges: tuple[int, int], once: bool = False) -> None:
    """Makes byte ranges present; free where the file is local."""
    if opened.is_partial:
        starts, ends = np.array(ranges, np.int64).T
        opened.ensure(np.ascontiguousarray(starts), np.ascontiguousarray(ends), once=once)


def read_words(opened: OpenFile, start: int, words: int, *, once: bool = False) -> U64:
    """So many words from byte `start` on."""
    ensure(opened, (start, start + 8 * words), once=once)
    data: U64 = np.empty(words, np.uint64)
    left = memoryview(data).cast("B")  # type: ignore[arg-type]
    while left:
        done = os.preadv(opened.fd, [left], start)
        if done == 0:
            raise corrupt(opened.where, f"it ends at byte {start}, inside a section")
        left, start = left[done:], start + done
    return data


def _whole(entry: SectionEntry, opened: OpenFile) -> BlockIndex:
    if entry.directory:
        directory = _directory(entry, opened)
        return _joined(entry, opened, directory, np.arange(entry.pages, dtype=np.int64))
    data = read_words(opened, entry.index, entry.index_words)
    if int(xxh64(data)) != entry.check:
        raise corrupt(opened.where, f"the index of slice {entry.slice} fails its checksum")
    return BlockIndex.of(entry, data)


def _directory(entry: SectionEntry, opened: OpenFile) -> Directory:
    data = read_words(opened, entry.directory, entry.index_words)
    if int(xxh64(data)) != entry.check:
        raise corrupt(opened.where, f"the directory of slice {entry.slice} fails its checksum")
    return Directory.of(entry.pages, entry.max_hash, data)


def _joined(entry: SectionEntry, opened: OpenFile, directory: Directory, pages: I64) -> BlockIndex:
    starts, ends = directory.offsets[pages], directory.offsets[pages + 1]
    opened.ensure(starts, ends)
    sizes: I64 = (ends - starts) // 8
    data: U64 = np.empty(int(sizes.sum()), np.uint64)
    bad = read_pages(opened.fd, starts, ends, directory.checks[pages], data)
    if bad >= 0:
        raise corrupt(opened.where, f"page {pages[bad]} of slice {entry.slice} fails its checksum")
    blocks: I64 = directory.blocks[pages + 1] - directory.blocks[pages]
    *columns, largest = join_pages(data, sizes, blocks, directory.nexts(pages))
    return BlockIndex.joined(Columns(*columns), entry.max_hash, largest)
