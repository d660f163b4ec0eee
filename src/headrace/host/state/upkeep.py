"""The host's background work: maintenance jobs in one lane, collections in another.

Invariants: at most one task per partition is under way in a lane. A failed task is logged; the next commit
submits it again. When the host stops, jobs break off and collections are finished.
Threads: two for jobs, so that a long one does not hold up all partitions, and one for collections.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor

log = logging.getLogger(__name__)

JOBS = 2  # jobs at a time, over all partitions of a host


class Lane:
    """Threads for one kind of work."""

    def __init__(self, pool: Executor, is_stopping: Callable[[], bool], *, finishes: bool) -> None:
        self._pool, self._is_stopping, self._finishes = pool, is_stopping, finishes
        self._busy: set[str] = set()
        self._mutex = threading.Lock()

    def is_busy(self, partition: str) -> bool:
        """Whether a task of the partition is under way."""
        with self._mutex:
            return partition in self._busy

    def submit(self, partition: str, run: Callable[[], None]) -> Future[None] | None:
        """Queues a task; None while an earlier one of the partition is under way, or the host stops."""
        with self._mutex:
            if partition in self._busy or self._is_stopping():
                return None
            self._busy.add(partition)
        return self._pool.submit(self._run, partition, run)

    def _run(self, partition: str, run: Callable[[], None]) -> None:
        try:
            if self._finishes or not self._is_stopping():
                run()
        except Exception:
            if not self._is_stopping():
                log.exception("upkeep of %s failed; the next commit tries it again", partition)
        finally:
            with self._mutex:
                self._busy.discard(partition)

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class Upkeep:
    """The background work of a host; simulations use one pool for all of it."""

    def __init__(self, pool: Executor | None = None) -> None:
        self.stopping = threading.Event()  # breaks off jobs under way
        jobs = pool or ThreadPoolExecutor(JOBS, thread_name_prefix="upkeep")
        collections = pool or ThreadPoolExecutor(1, thread_name_prefix="collect")
        self.jobs = Lane(jobs, self.stopping.is_set, finishes=False)
        self.collections = Lane(collections, self.stopping.is_set, finishes=True)

    def close(self) -> None:
        """Breaks off jobs, and finishes collections that are due."""
        self.stopping.set()
        self.jobs.close()
        self.collections.close()
