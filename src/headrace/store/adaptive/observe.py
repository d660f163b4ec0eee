"""Counts the accesses to a store, and decides which layout fits them.

`fit` is pure; `Observer` only counts. Threads: those of its store, one transaction at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.spec import GROUP, TIME, WINDOW_END, WINDOW_START, OperatorSpec, StoreName, Window
from headrace.store.segments.reader import Segment

GROWN_PART = 0.5  # of the memory share: larger state moves to a layout
WAIT_PART = 0.75  # of the memory share: smaller state waits for a first read, the best evidence
READ_AGAIN = 1.5  # reads per row from which rows count as read repeatedly
PIECE_ROWS = 4096  # rows of one slice in one file; fewer make reading mostly seeking


@dataclass(frozen=True)
class Observed:
    """Accesses since the store was opened, and its size now."""

    rows_in: int = 0
    rows_read: int = 0
    edge_reads: int = 0  # reads that are a row's first, plus reads that are its last
    groups: int = 0  # reads of one key in one window
    ends: int = 0  # different times at which those windows ended, added up over the epochs
    pieces: int = 0  # slices of files that the reads touched
    held_bytes: int = 0
    share_bytes: int = 1

    @property
    def read_times(self) -> float:
        """Reads per row; counting first and last reads cancels the effect of growing state."""
        return 2 * self.rows_read / max(1, self.edge_reads)

    @property
    def aligned(self) -> float:
        """The share of reads that happen together: 0 if every group ends at its own time."""
        return 1 - self.ends / self.groups if self.groups else 1.0

    @property
    def piece_rows(self) -> float:
        return self.rows_read / max(1, self.pieces)


@dataclass(frozen=True)
class Fit:
    """A layout, and the sentence that explains it."""

    store: StoreName
    reason: str


def fit(observed: Observed, window: Window) -> Fit | None:
    """The layout that state should move to now; None while it may stay in memory."""
    part = observed.held_bytes / observed.share_bytes
    if part < GROWN_PART or (not observed.groups and part < WAIT_PART):
        return None
    return best(observed, window)


def best(observed: Observed, window: Window) -> Fit:
    """The layout that fits the accesses, whatever the size."""
    if window.session:
        return Fit(
            "aur",
            f"rows are read per session: {observed.groups} sessions ended at {observed.ends} times "
            f"(aligned {observed.aligned:.2f})",
        )
    if not observed.groups:
        return Fit("aar", "no window has closed yet, and fixed windows close together")
    crosses = window.every_us > window.slice_us  # slices are finer than the slide: range has fewer pieces
    if crosses and observed.read_times >= READ_AGAIN and observed.piece_rows < PIECE_ROWS:
        return Fit(
            "range",
            f"a row is read {observed.read_times:.1f} times, in pieces of {observed.piece_rows:.0f} rows",
        )
    return Fit(
        "aar",
        f"windows close together (aligned {observed.aligned:.2f}) "
        f"and a row is read {observed.read_times:.1f} times",
    )


def verdict(store: StoreName, reason: str, observed: Observed) -> str:
    """The layout, its reason and the counts behind it, for people."""
    why = (
        reason or f"{observed.held_bytes / observed.share_bytes:.0%} of its share of memory, so it may stay"
    )
    counts = f"{observed.rows_in:,} rows in, {observed.rows_read:,} read in {observed.groups:,} groups"
    return f"{store}: {why}; counted: {counts}, {observed.pieces:,} pieces"


@dataclass
class Observer:
    """Counts of one store."""

    spec: OperatorSpec
    rows_in: int = 0
    rows_read: int = 0
    edge_reads: int = 0
    groups: int = 0
    ends: int = 0
    pieces: int = 0
    _ends: set[int] = field(default_factory=set)  # of the running epoch
    _starts: set[int] = field(default_factory=set)

    def took(self, rows: int) -> None:
        self.rows_in += rows

    def read(self, batch: pa.RecordBatch) -> None:
        """Counts a batch of results; those of a grouped operator are the rows that were read."""
        if not batch.num_rows:
            return
        self.rows_read += batch.num_rows
        self.edge_reads += _edge_reads(batch, self.spec)
        groups = (
            pc.count_distinct(batch.column(GROUP)).as_py()
            if self.spec.work.returns_rows
            else batch.num_rows
        )
        self.groups += groups
        self._ends |= _times(batch, WINDOW_END)
        self._starts |= _times(batch, WINDOW_START)

    def epoch_over(self, segments: list[Segment]) -> None:
        """Ends the epoch's reads; `segments` are the ones that they could touch."""
        window = self.spec.window
        if self._starts and window is not None and not window.session:
            sections = [bucket for segment in segments for bucket in segment.sections]
            width = window.width_us
            self.pieces += sum(
                sum(1 for bucket in sections if start <= bucket < start + width) for start in self._starts
            )
        self.ends += len(self._ends)
        self._ends, self._starts = set(), set()

    def observed(self, held_bytes: int, share_bytes: int) -> Observed:
        return Observed(
            self.rows_in,
            self.rows_read,
            self.edge_reads,
            self.groups,
            self.ends,
            self.pieces,
            held_bytes,
            share_bytes,
        )


def _edge_reads(batch: pa.RecordBatch, spec: OperatorSpec) -> int:
    """How many rows of a batch are in no earlier window, and how many in no later one.

    Those are the rows in the last slide of their window, and in the first.
    """
    window = spec.window
    if window is None or window.session or not spec.work.returns_rows:
        return 2 * int(batch.num_rows)
    starts, times = (batch.column(name).cast(pa.int64()) for name in (WINDOW_START, TIME))
    into = pc.subtract(times, starts)
    first = pc.greater_equal(into, window.width_us - window.every_us)
    last = pc.less(into, window.every_us)
    return int(pc.sum(first).as_py()) + int(pc.sum(last).as_py())


def _times(batch: pa.RecordBatch, name: str) -> set[int]:
    return set(pc.unique(batch.column(name).cast(pa.int64())).to_pylist())
