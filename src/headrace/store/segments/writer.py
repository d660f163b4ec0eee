"""Writes segments: ordered runs in, one immutable file out.

Invariants: a segment appears under its name only when it is whole (written beside it, fsynced, renamed).
Memory is one write buffer, plus per section the index (about 2 bytes per row); a small file is one write.
Threads: one writer per path.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headrace.format import segment as form
from headrace.format.segment import SectionEntry
from headrace.kernels.core.checksum import xxh64
from headrace.kernels.core.filter import filter_start
from headrace.kernels.core.pack import cut_blocks, fill_blocks, fill_filter
from headrace.row.arrays import I64, U64
from headrace.row.run import Run
from headrace.store.segments.index_pages import Columns

BLOCK_BYTES = 4096
_BUFFER_BYTES = 1 << 20
_PARTS_MAX = os.sysconf("SC_IOV_MAX")  # of one call; an index of more pages takes several


@dataclass(frozen=True)
class SegmentMeta:
    """What a manifest records of a segment; `checksum` names its whole content."""

    name: str
    size: int
    rows: int
    sections: tuple[SectionEntry, ...]
    checksum: int


def write_segment(
    path: str | Path,
    width: int,
    sections: Iterable[tuple[int, Iterable[Run]]],
    variable_words: Sequence[int],
    *,
    block_bytes: int = BLOCK_BYTES,
    page_blocks: int = form.PAGE_BLOCKS,
    sync: bool = True,
) -> SegmentMeta:
    """Write a segment of `(slice, runs)` sections and make it visible as `path`.

    Slices are distinct. The runs of a section are ordered, and each begins above the last hash of the one
    before, so that rows of equal hash stay together. A section without rows is left out. With `sync` the
    bytes are on disk; the name is not, whoever makes it count does that.
    """
    hidden = f"{path}.tmp"
    fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            writer = _Writer(fd, width, np.array(variable_words, np.int64), block_bytes, page_blocks)
            meta = writer.write_all(os.path.basename(path), sections)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(hidden, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(hidden)
        raise
    return meta


@dataclass
class _Index:
    """The index of the section being written, one part per run."""

    firsts: list[U64] = field(default_factory=list)
    offsets: list[I64] = field(default_factory=list)
    row_starts: list[I64] = field(default_factory=list)
    checks: list[U64] = field(default_factory=list)
    filters: list[U64] = field(default_factory=list)
    rows: int = 0
    blocks: int = 0
    last: int = -1

    def columns(self, end: int) -> Columns:
        """The columns over all blocks, which end at byte `end`."""
        return Columns(
            np.concatenate(self.firsts),
            np.concatenate([*self.offsets, np.array([end], np.int64)]),
            np.concatenate([*self.row_starts, np.array([self.rows], np.int64)]),
            np.concatenate(self.checks),
            np.concatenate(self.filters),
        )


class _Writer:
    """Appends to one file; `_at` is its length, of which the last bytes may be waiting to be written."""

    def __init__(self, fd: int, width: int, variable: I64, block_bytes: int, page_blocks: int) -> None:
        self._fd = fd
        self._page_blocks = page_blocks
        self._width = width
        self._variable = variable
        self._block_bytes = block_bytes
        self._buffer: U64 = np.empty(0, np.uint64)
        self._in_use = False  # whether the buffer waits too
        self._waiting: list[memoryview] = []
        self._at = 0

    def write_all(self, name: str, sections: Iterable[tuple[int, Iterable[Run]]]) -> SegmentMeta:
        self._append(form.header(self._width))
        entries: dict[int, SectionEntry] = {}
        for number, runs in sections:
            if number in entries:
                raise ValueError(f"slice {number} is given twice")
            entry = self._section(number, runs)
            if entry.rows:
                entries[number] = entry
        written = tuple(entries.values())
        data, check = form.footer(self._width, self._variable.tolist(), written, self._at)
        self._append(data)
        self._flush()
        return SegmentMeta(name, self._at, sum(entry.rows for entry in written), written, check)

    def _section(self, number: int, runs: Iterable[Run]) -> SectionEntry:
        start, index = self._at, _Index()
        for run in runs:
            if len(run):
                self._run(run, index)
        if not index.rows:
            return SectionEntry(number, 0, 0, 0, 0, start, start, 0)
        columns, end = index.columns(self._at), self._at
        pages = columns.pages(self._page_blocks)
        for page in pages:
            self._append(page)
        directory, check = 0, int(xxh64(pages[0]))
        if len(pages) > 1:
            directory, packed = self._at, columns.directory(pages, end, self._page_blocks)
            self._append(packed)
            check = int(xxh64(packed))
        first = int(index.firsts[0][0])
        place = (start, end, check, directory, len(pages))
        return SectionEntry(number, index.rows, index.blocks, first, index.last, *place)

    def _run(self, run: Run, index: _Index) -> None:
        if run.words.shape != (len(run), self._width):
            raise ValueError(f"rows of {run.words.shape[1]} words in a segment of {self._width}")
        starts, offsets, ordered = cut_blocks(run.order, run.words, self._variable, self._block_bytes)
        if not ordered or int(run.order[0]) <= index.last:
            raise ValueError("the runs of a section must be ordered, each above the one before")
        blocks = len(starts) - 1
        index.firsts.append(run.order[starts[:-1]])
        index.offsets.append(self._at + 8 * offsets[:-1])
        index.row_starts.append(index.rows + starts[:-1])
        size = filter_start(index.rows + len(run), index.blocks + blocks) - filter_start(
            index.rows, index.blocks
        )
        index.filters.append(np.zeros(size, np.uint64))
        fill_filter(run.order, starts, index.rows, index.blocks, index.filters[-1])
        self._blocks(run, starts, offsets, index)
        index.rows += len(run)
        index.blocks += blocks
        index.last = int(run.order[-1])

    def _blocks(self, run: Run, starts: I64, offsets: I64, index: _Index) -> None:
        first, blocks = 0, len(starts) - 1
        while first < blocks:
            room = int(offsets[first]) + _BUFFER_BYTES // 8
            end = max(first + 1, int(np.searchsorted(offsets, room, "right")) - 1)
            buffer = self._free_buffer(int(offsets[end] - offsets[first]))
            rows = (run.order, run.words, run.heap, self._variable)
            index.checks.append(fill_blocks(*rows, starts, offsets, first, end, buffer))
            self._append(buffer)
            first = end

    def _free_buffer(self, size: int) -> U64:
        """So many words that nothing waits in."""
        if self._in_use:
            self._flush()
        self._in_use = True
        if size > self._buffer.size:
            self._buffer = np.empty(size, np.uint64)
        return self._buffer[:size]

    def _append(self, data: bytes | U64) -> None:
        """Let data be written with what comes next; it must not change before `_flush`."""
        self._waiting.append(memoryview(data).cast("B"))  # type: ignore[arg-type]
        self._at += self._waiting[-1].nbytes

    def _flush(self) -> None:
        left, self._waiting, self._in_use = self._waiting, [], False
        while left:
            done = os.writev(self._fd, left[:_PARTS_MAX])
            while left and done >= left[0].nbytes:
                done -= left.pop(0).nbytes
            if left:
                left[0] = left[0][done:]
