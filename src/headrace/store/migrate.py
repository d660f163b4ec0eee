"""State that says nothing about its use: it begins in memory, and moves to the layout that fits.

    memory ─▶ (grown: `observe.fit`) ─▶ aar, aur: the same files, rows leave memory
                                     └▶ range: committed files are rewritten beside the batches ─▶ switch

Invariants: `stored_as` is whose files `segments` are, and every manifest names it. A store that moves goes
on with its old files, which stay as they are meanwhile; the new ones count from the first commit after the
switch, which happens between two batches. Whatever breaks off before that commit leaves the
old version as it was.
Threads: as `store.contract` says; the thunk of a `Move` runs in the background and touches only its inputs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.spec import OperatorSpec, StoreName, Window
from headrace.store.budget import MemoryBudget
from headrace.store.contract import Compaction, ReadsAhead, Store
from headrace.store.memory import ENDLESS_BYTES, MemoryStore
from headrace.store.observe import Fit, Observed, Observer, best, fit
from headrace.store.range import open_range
from headrace.store.rewrite import by_time_files, discard
from headrace.store.segment import Segment

log = logging.getLogger(__name__)

REST_BYTES = 4 << 20  # what may be rewritten between two batches; more is left to the background
Stage = Callable[[], Path]


class GrowingBudget(MemoryBudget):
    """Endless until it is bound to the partition's share."""

    def __init__(self, whole: MemoryBudget, bound: bool) -> None:
        super().__init__(0)
        self.whole, self.bound = whole, bound

    @property
    def share_bytes(self) -> int:
        return self.whole.share_bytes if self.bound else ENDLESS_BYTES


@dataclass(frozen=True)
class Move:
    """Committed segments that are to be written in the new layout."""

    inputs: tuple[Segment, ...]
    write: Callable[[Stage, threading.Event], list[Segment]]


class MovingStore(MemoryStore):
    """A store that changes its layout while it is used."""

    def __init__(self, inner: Store, budget: GrowingBudget, stored_as: StoreName) -> None:
        super().__init__(inner, budget.whole)
        self.stored_as: StoreName = stored_as
        self.reason = "" if stored_as == "memory" else "the version says so"
        self._bounds = budget
        self._observer = Observer(inner.spec)
        self._target: Fit | None = None  # a layout whose files have to be written first
        self._moved: set[Segment] = set()  # inputs that `_unnamed` stands for
        self._unnamed: list[Segment] = []  # files of the new layout that no version has

    @property
    def prefetch_hits(self) -> int:
        return self._inner.prefetch_hits if isinstance(self._inner, ReadsAhead) else 0

    @property
    def prefetch_misses(self) -> int:
        return self._inner.prefetch_misses if isinstance(self._inner, ReadsAhead) else 0

    # ── observed ─────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        self._observer.took(rows.num_rows)
        if not self._bounds.bound and self.memory_bytes + 2 * rows.nbytes > self._budget.share_bytes:
            self.leave_memory(best(self._observed(), self._window))  # one batch outgrew it
        self._inner.apply(rows)

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        for batch in self._inner.results(watermark_us):
            if self.stored_as == "memory":
                self._observer.read(batch)
            yield batch

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self._observer.epoch_over(self._inner.segments)
        self._inner.settle(segments, watermark_us)
        if self.stored_as == "memory" and self._target is None:
            found = fit(self._observed(), self._window)
            if found is not None:
                self.leave_memory(found)

    def _observed(self) -> Observed:
        """State that was opened again is on disk before any of it is in memory."""
        held = max(self.memory_bytes, sum(segment.size for segment in self._inner.segments))
        return self._observer.observed(held, self._budget.share_bytes)

    @property
    def _window(self) -> Window:
        assert self.spec.window is not None, "rows are kept until their window closes"
        return self.spec.window

    def leave_memory(self, found: Fit) -> None:
        """Begin to move; from now on memory is bounded as in the layout that was found."""
        self._bounds.bound, self.reason = True, found.reason
        if found.store == "range":
            self._target = found
        else:
            self.stored_as = found.store  # memory writes the files of this very layout
        log.info("state of %s moves from memory to %s: %s", self.spec.name, found.store, found.reason)

    # ── moved ────────────────────────────────────────────────────────────────────────────────

    def compaction(self, many: int | None = None) -> Compaction | None:
        """None while files are rewritten: the inputs of the move must stay."""
        return None if self.is_moving else self._inner.compaction(many)

    def move(self) -> Move | None:
        """What to write in the new layout next, beside the batches; None when there is nothing."""
        inputs = self._rest()
        if self._target is None or not inputs or self.is_ready:
            return None
        spec, watermark_us = self.spec, self.watermark_us

        def write(stage: Stage, stop: threading.Event) -> list[Segment]:
            return by_time_files(spec, inputs, watermark_us, stage, stop)

        return Move(inputs, write)

    def take(self, move: Move, written: list[Segment]) -> None:
        """A move is done; one that came too late or twice is dropped."""
        if self._target is None or not self._moved.isdisjoint(move.inputs):
            discard(written)
            return
        self._moved.update(move.inputs)
        self._unnamed += written

    @property
    def is_moving(self) -> bool:
        """Whether committed files are being rewritten, and must stay."""
        return self._target is not None

    @property
    def is_ready(self) -> bool:
        """Whether so little is left to be rewritten that the next batch can begin in the new layout."""
        if self._target is None or not (self._moved or not self.segments):
            return False
        return sum(segment.size for segment in self._rest()) <= REST_BYTES

    def switch(self, stage: Stage) -> None:
        """Go on in the new layout. Between two batches, and only once `is_ready`."""
        assert self._target is not None
        inner, rest = self._inner, self._rest()
        self._unnamed += by_time_files(self.spec, rest, self.watermark_us, stage, threading.Event())
        opened = open_range(self.spec, self._bounds, self.seal, list(self._unnamed), self.watermark_us)
        opened.late_rows = inner.late_rows
        self._inner, self.stored_as, self._target = opened, self._target.store, None
        self._moved = set()

    def named(self) -> list[Segment]:
        """The files that the commit after the switch must give names to; they are asked for once."""
        if self.is_moving:
            return []
        unnamed, self._unnamed = self._unnamed, []
        return unnamed

    def abandon(self) -> None:
        """Nobody goes on with this store: remove what no version has."""
        discard(self._unnamed)
        self._unnamed = []

    def _rest(self) -> tuple[Segment, ...]:
        return tuple(segment for segment in self.segments if segment not in self._moved)


def stored_as(store: Store) -> StoreName:
    """Whose files the store's segments are, as manifests say it."""
    return store.stored_as if isinstance(store, MovingStore) else store.spec.store


def found_as(spec: OperatorSpec, said: str) -> StoreName:
    """Which store to open for a version whose manifest says `said`; empty before there is one."""
    names: dict[str, StoreName] = {"aar": "aar", "aur": "aur", "range": "range"}
    return names.get(said, "memory") if spec.store == "auto" else spec.store
