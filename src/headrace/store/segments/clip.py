"""A segment of which only the rows of some hash groups count: one that several partitions share.

Every read is clipped here, so stores need no check. Look-ups too: after a second change of the number of
partitions one partition may name a file twice, for two ranges of hashes, each in an order of its own. Rows
ordered by time have their hash in a word, and are filtered after the read. Counts are estimates, as
`count_range` is everywhere.
Threads: as those of the segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property

import numpy as np

from headrace.files.logical import LogicalFile
from headrace.format.segment import SectionEntry
from headrace.plan.partitions.groups import Groups
from headrace.row.arrays import I64, U64, Flags
from headrace.row.run import Run
from headrace.store.segments.reader import Answer, Prepared, Segment, empty_run


class ClippedSegment:
    """The rows of `groups` in a segment; `rows_about` is how many rows that is, by the manifest.

    `hash_word` is the word of a row's hash where rows are ordered by time; None: they are ordered by hash.
    """

    def __init__(
        self, whole: Segment, groups: Groups, rows_about: int, hash_word: int | None = None
    ) -> None:
        self.whole, self.groups, self._hash_word = whole, groups, hash_word
        self._low, self._high = groups.hashes
        self._rows_about = min(max(1, rows_about), whole.rows)

    @property
    def file(self) -> LogicalFile:
        return self.whole.file

    @property
    def kind(self) -> str:
        return self.whole.kind

    @property
    def width(self) -> int:
        return self.whole.width

    @property
    def label(self) -> str:
        return self.whole.label

    @property
    def memory_bytes(self) -> int:
        return self.whole.memory_bytes

    @property
    def is_far(self) -> bool:
        return self.whole.is_far

    @cached_property
    def sections(self) -> Mapping[int, SectionEntry]:
        """The sections that may have rows of the groups, with bounds and counts of those."""
        clip = self._by_hash if self._hash_word is None else self._by_time
        clipped = {number: clip(entry) for number, entry in self.whole.sections.items()}
        return {number: entry for number, entry in clipped.items() if entry is not None}

    def _by_hash(self, entry: SectionEntry) -> SectionEntry | None:
        low, high = max(entry.min_hash, self._low), min(entry.max_hash, self._high - 1)
        if low > high:
            return None
        return _part(entry, (high - low + 1) / (entry.max_hash - entry.min_hash + 1), low, high)

    def _by_time(self, entry: SectionEntry) -> SectionEntry | None:
        return _part(entry, self._rows_about / self.whole.rows, entry.min_hash, entry.max_hash)

    @cached_property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.sections.values())

    @property
    def size(self) -> int:
        """About how many bytes of the file are of the groups."""
        return max(1, self.whole.size * self.rows // self.whole.rows)

    @cached_property
    def last(self) -> int:
        return max(self.sections)

    def prepare(self, number: int, hashes: U64) -> Future[Prepared]:
        start, end = self._mine(hashes)
        return self.whole.prepare(number, hashes[start:end])

    def answer(self, number: int, answer: Answer) -> None:
        start, end = self._mine(answer.probe.order)
        if (start, end) == (0, len(answer.probe)):
            self.whole.answer(number, answer)
        elif start < end:
            others = ~answer.mask
            others[start:end] = False
            answer.mask[others] = True
            self.whole.answer(number, answer)
            answer.mask[others] = False

    def rows_of(self, number: int, hashes: U64, turns: I64 | None = None) -> Run:
        start, end = self._mine(hashes)
        if turns is not None:
            turns = turns[(turns >= start) & (turns < end)] - start
        return self.whole.rows_of(number, hashes[start:end], turns)

    def _mine(self, ordered: U64) -> tuple[int, int]:
        """Where the hashes of the groups begin and end."""
        low = np.searchsorted(ordered, np.uint64(self._low), "left")
        return int(low), int(np.searchsorted(ordered, np.uint64(self._high - 1), "right"))

    def scan(self, number: int, chunk_rows: int) -> Iterator[Run]:
        if self._hash_word is not None:
            yield from map(self._filtered, self.whole.scan(number, chunk_rows))
        elif number in self.sections:
            for low, high in self._ranges(number, chunk_rows):
                yield self.whole.scan_range(number, low, high)

    def _ranges(self, number: int, chunk_rows: int) -> Iterator[tuple[int, int]]:
        """Ranges of hashes that have about `chunk_rows` rows each."""
        entry = self.sections[number]
        low, high = entry.min_hash, entry.max_hash + 1
        parts = max(1, -(-self.whole.count_range(number, low, high) // chunk_rows))
        for part in range(parts):
            yield low + (high - low) * part // parts, low + (high - low) * (part + 1) // parts

    def count_range(self, number: int, low: int, high: int) -> int:
        if self._hash_word is not None:
            return self.whole.count_range(number, low, high)
        low, high = max(low, self._low), min(high, self._high)
        return self.whole.count_range(number, low, high) if low < high else 0

    def scan_range(self, number: int, low: int, high: int) -> Run:
        if self._hash_word is not None:
            return self._filtered(self.whole.scan_range(number, low, high))
        low, high = max(low, self._low), min(high, self._high)
        return self.whole.scan_range(number, low, high) if low < high else empty_run(self.width)

    def _filtered(self, run: Run) -> Run:
        """The rows whose hash is of the groups; the heap stays as it is."""
        hashes = run.words[:, self._hash_word]
        mine: Flags = (hashes >= np.uint64(self._low)) & (hashes <= np.uint64(self._high - 1))
        return run if mine.all() else Run(run.order[mine], run.words[mine], run.heap)

    def resident_share(self) -> float:
        return self.whole.resident_share()

    def release(self, number: int) -> None:
        self.whole.release(number)

    def close(self) -> None:
        self.whole.close()


def _part(entry: SectionEntry, share: float, low: int, high: int) -> SectionEntry:
    """A section's entry for a share of its rows; offsets only give about how many bytes that is."""
    rows = min(entry.rows, max(1, round(entry.rows * share)))
    size = max(1, round((entry.index - entry.start) * share))
    return replace(entry, rows=rows, index=entry.start + size, min_hash=low, max_hash=high)
