"""The moving store: state of an unmarked function begins in memory and moves to the layout that fits.

    memory ─▶ (grown: `observe.fit`) ─▶ aar, aur: the same files, rows leave memory
                                     └▶ range: committed files are rewritten beside the batches ─▶ switch

Invariants: `stored_as` is the layout of `segments`, and every manifest records it. While a store moves, it
continues on its old files, which stay unchanged. The switch happens between two batches; the new files
belong to the version of the first commit after it. A failure before that commit leaves the old version.
Threads: as `store.base.contract`; `Move.run` works in the background and reads only its inputs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.spec import OperatorSpec, StoreName, Window
from headrace.store.adaptive.memory import MemoryStore
from headrace.store.adaptive.observe import Fit, Observed, Observer, best, fit, verdict
from headrace.store.adaptive.rewrite import by_time_files
from headrace.store.append.range import open_range
from headrace.store.base.contract import Store
from headrace.store.base.files import Staging
from headrace.store.base.jobs import Job, Taken
from headrace.store.base.share import GrowingShare
from headrace.store.rows.groups import Computations
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment

log = logging.getLogger(__name__)

REST_BYTES = 4 << 20  # the most that is rewritten between two batches; more is left to the background


@dataclass(frozen=True)
class Move:
    """A `Job` that writes committed segments in the new layout."""

    store: MovingStore
    inputs: tuple[Segment, ...]
    watermark_us: int | None

    def run(self, staging: Staging, stop: threading.Event) -> list[SegmentFile]:
        return by_time_files(self.store.spec, self.inputs, self.watermark_us, staging, stop)

    def take(self, written: list[SegmentFile]) -> Taken:
        return Taken.NOW if self.store.take(self, written) else Taken.NEVER

    def replace_in(
        self, segments: Sequence[Segment], written: Sequence[SegmentFile]
    ) -> list[Segment] | None:
        """None: the new files count from the switch on, all at once."""
        return None


class MovingStore(MemoryStore):
    """A store that changes its layout while it is used."""

    def __init__(
        self, inner: Store, share: GrowingShare, stored_as: StoreName, computations: Computations
    ) -> None:
        super().__init__(inner, share.whole)
        self._computations = computations
        self._stored_as: StoreName = stored_as
        self.reason = "" if stored_as == "memory" else "the version names it"
        self._growing = share
        self._observer = Observer(inner.spec)
        self._target: Fit | None = None  # a layout whose files have to be written first
        self._moved: set[Segment] = set()  # inputs that `_unnamed` stands for
        self._unnamed: list[SegmentFile] = []  # files of the new layout that no version has

    @property
    def stored_as(self) -> StoreName:
        return self._stored_as

    @property
    def verdict(self) -> str:
        target = self._target.store if self._target is not None else self.stored_as
        return verdict(target, self.reason, self._observed())

    # ── observed ─────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        self._observer.took(rows.num_rows)
        if not self._growing.bounded and self.memory_bytes + 2 * rows.nbytes > self._share.limit_bytes:
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
            target = fit(self._observed(), self._window)
            if target is not None:
                self.leave_memory(target)

    def _observed(self) -> Observed:
        """Counts so far; reopened state is on disk before any of it is in memory."""
        size = max(self.memory_bytes, sum(segment.size for segment in self._inner.segments))
        return self._observer.observed(size, self._share.limit_bytes)

    @property
    def _window(self) -> Window:
        assert self.spec.window is not None, "rows are kept until their window closes"
        return self.spec.window

    def leave_memory(self, target: Fit) -> None:
        """Begins to move; from now on memory is bounded as in the new layout."""
        self._growing.bounded, self.reason = True, target.reason
        if target.store == "range":
            self._target = target
        else:
            self._stored_as = target.store  # memory already writes the files of this layout
        log.info("state of %s moves from memory to %s: %s", self.spec.name, target.store, target.reason)

    # ── moved ────────────────────────────────────────────────────────────────────────────────

    def maintenance(self, many: int | None = None) -> Job | None:
        """The next move, or else a compaction; compactions wait while files are moved."""
        if not self.is_moving:
            return self._inner.maintenance(many)
        return self.move() if many is None else None

    def move(self) -> Move | None:
        """The segments to write in the new layout next; None when there are none."""
        inputs = self._rest()
        if self._target is None or not inputs or self.is_ready:
            return None
        return Move(self, inputs, self.watermark_us)

    def take(self, move: Move, written: list[SegmentFile]) -> bool:
        """Takes the files of a finished move; refuses those of a late or repeated move."""
        if self._target is None or not self._moved.isdisjoint(move.inputs):
            return False
        self._moved.update(move.inputs)
        self._unnamed += written
        return True

    @property
    def is_moving(self) -> bool:
        """Whether committed segments are being rewritten."""
        return self._target is not None

    @property
    def keeps_files(self) -> bool:
        return self.is_moving

    @property
    def is_ready(self) -> bool:
        """Whether the rest is small enough to be rewritten between two batches."""
        if self._target is None or not (self._moved or not self.segments):
            return False
        return sum(segment.size for segment in self._rest()) <= REST_BYTES

    def begin_epoch(self, staging: Staging) -> None:
        """Changes to the new layout once that is ready."""
        if self.is_ready:
            self.switch(staging)

    def switch(self, staging: Staging) -> None:
        """Opens the new layout over the moved files; only if `is_ready`."""
        assert self._target is not None
        inner, rest = self._inner, self._rest()
        self._unnamed += by_time_files(self.spec, rest, self.watermark_us, staging, threading.Event())
        opened = open_range(
            self.spec, self._growing, self.files, list(self._unnamed), self.watermark_us, self._computations
        )
        opened.late_rows = inner.late_rows
        self._inner, self._stored_as, self._target = opened, self._target.store, None
        self._moved = set()

    def take_unnamed(self) -> list[SegmentFile]:
        """The moved files, in the commit after the switch."""
        return [] if self.is_moving else self.abandon()

    def abandon(self) -> list[SegmentFile]:
        unnamed, self._unnamed = self._unnamed, []
        return unnamed

    def _rest(self) -> tuple[Segment, ...]:
        return tuple(segment for segment in self.segments if segment not in self._moved)


def layout_at(spec: OperatorSpec, recorded: str) -> StoreName:
    """The store to open for a version whose manifest records this one; empty before the first version."""
    names: dict[str, StoreName] = {"aar": "aar", "aur": "aur", "range": "range"}
    return names.get(recorded, "memory") if spec.store == "auto" else spec.store
