"""What stores read: segments, and the answer to one probe over several of them.

A segment is a file (`store.segments.file`) or a view of RocksDB (`store.rocksdb.view`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

import numpy as np

from headrace.files.logical import LogicalFile
from headrace.format.segment import SectionEntry
from headrace.row.arrays import I64, U8, U64, Flags
from headrace.row.run import Run
from headrace.store.segments.block_index import BlockIndex

# The index of the blocks that the hashes may be in, by the file's `id` and the section.
Prepared = tuple[tuple[int, int], BlockIndex | None]


@dataclass(frozen=True)
class Found:
    """The answer to a probe: which keys were found, and their rows (zero where not found)."""

    mask: Flags  # [n]
    words: U64  # [n, width]
    heap: U8


class Segment(Protocol):
    """Rows of one kind, in sections, ordered within each section.

    Threads: all reads from any thread at the same time.
    """

    @property
    def file(self) -> LogicalFile: ...
    @property
    def kind(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def sections(self) -> Mapping[int, SectionEntry]: ...
    @property
    def rows(self) -> int: ...
    @property
    def last(self) -> int:
        """The number of its last section."""

    @property
    def memory_bytes(self) -> int:
        """Memory of its indexes."""

    @property
    def is_far(self) -> bool:
        """Whether reads may have to fetch ranges from elsewhere."""

    @property
    def label(self) -> str:
        """The name that the store has for the file; empty where it needs none."""

    def prepare(self, number: int, hashes: U64) -> Future[Prepared]:
        """Fetches what a read of ordered hashes needs; only where the segment is far."""

    def answer(self, number: int, answer: Answer) -> None:
        """Adds the rows of keys that `answer` has not found yet."""

    def scan(self, number: int, chunk_rows: int) -> Iterator[Run]:
        """All rows of a section as ordered runs of about `chunk_rows` rows."""

    def count_range(self, number: int, low: int, high: int) -> int:
        """About how many rows have an order key in `[low, high)`, without reading rows."""

    def scan_range(self, number: int, low: int, high: int) -> Run:
        """The rows with an order key in `[low, high)` as one ordered run; `high` may be 2**64."""

    def rows_of(self, number: int, hashes: U64, turns: I64 | None = None) -> Run:
        """All rows of ordered, distinct hashes as one ordered run."""

    def resident_share(self) -> float:
        """The share of its bytes that are read without the disk."""

    def release(self, number: int) -> None:
        """Frees the memory of a section's index."""

    def close(self) -> None: ...


def empty_run(width: int) -> Run:
    return Run(np.empty(0, np.uint64), np.empty((0, width), np.uint64), np.empty(0, np.uint8))


def index_bytes(segments: Iterable[Segment]) -> int:
    """Memory of the indexes of segments."""
    return sum(map(attrgetter("memory_bytes"), segments))


def prepare(sections: Sequence[tuple[Segment, int]], hashes: U64) -> list[Prepared]:
    """Fetches what a read of ordered hashes needs from several files at once; one fetches as it reads."""
    far = [(segment, number) for segment, number in sections if segment.is_far]
    far = [(segment, number) for segment, number in far if number in segment.sections]
    if len(far) < 2:
        return []
    fetched = [segment.prepare(number, hashes) for segment, number in far]
    # After an error the read meets the same trouble, and reports it.
    return [each.result() for each in fetched if each.exception() is None]


def announce(sections: Sequence[tuple[Segment, int]], hashes: U64) -> None:
    """Begins to fetch what a later read of ordered hashes needs of files that are elsewhere."""
    for segment, number in sections:
        if segment.is_far and number in segment.sections:
            segment.prepare(number, hashes)


class Answer:
    """The rows found so far for one probe; segments add to it, newest first."""

    def __init__(self, probe: Run, width: int) -> None:
        self.probe = probe
        self.mask: Flags = np.zeros(len(probe), np.bool_)
        self.words: U64 = np.zeros((len(probe), width), np.uint64)
        self.heap: U8 = np.empty(0, np.uint8)
        self.used = 0
        self.prepared: dict[tuple[int, int], BlockIndex | None] = {}  # by file and section
        self.reads = self.read_bytes = 0

    def read(self, reads: int, read_bytes: int) -> None:
        """Counts reads."""
        self.reads += int(reads)
        self.read_bytes += int(read_bytes)

    def result(self) -> Found:
        return Found(self.mask, self.words, self.heap[: self.used])


def lookup_all(segments: Sequence[Segment], number: int, probe: Run) -> Found:
    """The newest row of each key of an ordered probe; `segments` newest first."""
    answer = Answer(probe, segments[0].width if segments else probe.words.shape[1])
    answer_from(segments, number, answer)
    return answer.result()


def answer_from(segments: Sequence[Segment], number: int, answer: Answer) -> None:
    """Adds the newest row of each key that `answer` has not found yet; `segments` newest first."""
    sections = [(segment, number) for segment in segments]
    answer.prepared.update(prepare(sections, answer.probe.order))
    for segment in segments:
        if answer.mask.all():
            break
        segment.answer(number, answer)
