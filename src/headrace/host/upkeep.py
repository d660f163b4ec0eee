"""Work that no batch waits for: compacting and moving a partition's segments, collecting what none needs.

Invariants: a compaction or a move only reads committed segments and writes new files; they become state
when a commit's manifest names them. At most one job per partition is under way.
Threads: one worker thread per host; a failed job is logged and tried again after the next commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.checkpoint.collect import collect
from headrace.host.contract import Ticket
from headrace.store.contract import Compaction, Store, of_kind
from headrace.store.migrate import Move, MovingStore
from headrace.store.segment import Segment

if TYPE_CHECKING:
    from headrace.host.partition import Partition

log = logging.getLogger(__name__)

COLLECT_EVERY = 8  # commits between two looks for files that no retained version names
SEGMENTS_MANY = 24  # more than this at a restart, and the first batch waits for one compaction


@dataclass(frozen=True)
class Compacted:
    """A finished compaction: `output` stands for `inputs`, which were neighbours among their kind."""

    inputs: tuple[Segment, ...]
    output: Segment | None  # None: nothing in them was alive

    def replace_in(self, segments: Sequence[Segment]) -> list[Segment] | None:
        """`segments` with the inputs replaced, or None when they are not neighbours any more."""
        same = of_kind(segments, self.inputs[0].kind)
        first = next((at for at, segment in enumerate(same) if segment is self.inputs[0]), len(same))
        there = same[first : first + len(self.inputs)]
        if [id(segment) for segment in there] != [id(segment) for segment in self.inputs]:
            return None
        gone = {id(segment) for segment in self.inputs}
        kept: list[Segment] = []
        for segment in segments:
            if segment is self.inputs[-1] and self.output is not None:
                kept.append(self.output)
            if id(segment) not in gone:
                kept.append(segment)
        return kept

    def discard(self) -> None:
        """Nobody wants the output any more; it has no name yet, so nothing can need it."""
        if self.output is not None:
            self.output.close()
            Path(self.output.path).unlink(missing_ok=True)


class Upkeep:
    """The host's background worker."""

    def __init__(self, pool: Executor | None = None) -> None:
        self._pool = pool or ThreadPoolExecutor(max_workers=1, thread_name_prefix="upkeep")
        self._stop = threading.Event()
        self._busy: set[int] = set()
        self._mutex = threading.Lock()

    def consider(
        self,
        partition: Partition,
        ticket: Ticket,
        compaction: Compaction | None,
        moving: tuple[MovingStore, Move] | None = None,
    ) -> None:
        """Queue what the partition needs after a commit; cheap when it needs nothing."""
        due = partition.commits_since_collection >= COLLECT_EVERY or ticket.batch % COLLECT_EVERY == 0
        if compaction is None and moving is None and not due:
            return
        with self._mutex:
            if id(partition) in self._busy or self._stop.is_set():
                return
            self._busy.add(id(partition))
        if due:
            partition.commits_since_collection = 0
            self._pool.submit(self._job, partition, lambda: self._collect(partition, ticket))
        self._pool.submit(self._last_job, partition, compaction, moving)

    def _job(self, partition: Partition, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            if not self._stop.is_set():
                log.exception(
                    "upkeep of %s failed; it is tried again after the next commit", partition.home.prefix
                )

    def _last_job(
        self,
        partition: Partition,
        compaction: Compaction | None,
        moving: tuple[MovingStore, Move] | None,
    ) -> None:
        if compaction is not None and not self._stop.is_set():
            self._job(partition, lambda: partition.offer(self._compact(partition, compaction)))
        if moving is not None and not self._stop.is_set():
            self._job(partition, lambda: self._move(partition, *moving))
        with self._mutex:
            self._busy.discard(id(partition))

    def _collect(self, partition: Partition, ticket: Ticket) -> None:
        if ticket.base is not None:
            collect(partition.home.blobs, partition.home.prefix, ticket.base, ticket.retain)

    def relieve(self, partition: Partition, store: Store) -> Compacted | None:
        """One compaction before the first batch, where an application of few batches left many segments.

        Such an application ends before a compaction in the background could become state.
        """
        compaction = store.compaction(many=SEGMENTS_MANY)
        return None if compaction is None else self._compact(partition, compaction)

    def _compact(self, partition: Partition, compaction: Compaction) -> Compacted:
        path = partition.home.stage()
        if not compaction.write(path, self._stop):
            return Compacted(compaction.inputs, None)
        return Compacted(compaction.inputs, partition.home.open_segment(path, compaction.kind))

    def _move(self, partition: Partition, store: MovingStore, move: Move) -> None:
        partition.take_move(store, move, move.write(partition.home.stage, self._stop))

    def close(self) -> None:
        """Break off compactions, but let what is due be collected."""
        self._stop.set()
        self._pool.shutdown(wait=True)
