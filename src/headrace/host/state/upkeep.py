"""The host's background worker: maintenance jobs and garbage collection, which no batch waits for.

Invariants: at most one set of tasks per partition is under way. A failed task is logged; the next commit
submits it again.
Threads: one worker thread per host.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """One piece of background work."""

    run: Callable[[], None]
    is_due: bool  # runs even when the host stops


class Upkeep:
    """The host's background worker."""

    def __init__(self, pool: Executor | None = None) -> None:
        self._pool = pool or ThreadPoolExecutor(max_workers=1, thread_name_prefix="upkeep")
        self.stopping = threading.Event()  # breaks off jobs under way
        self._busy: set[str] = set()
        self._mutex = threading.Lock()

    def submit(self, partition: str, tasks: Sequence[Task]) -> bool:
        """Queues tasks of a partition; False while earlier ones are under way, or the host stops."""
        with self._mutex:
            if partition in self._busy or self.stopping.is_set():
                return False
            self._busy.add(partition)
        for task in tasks[:-1]:
            self._pool.submit(self._run, partition, task)
        self._pool.submit(self._run_last, partition, tasks[-1])
        return True

    def _run(self, partition: str, task: Task) -> None:
        if self.stopping.is_set() and not task.is_due:
            return
        try:
            task.run()
        except Exception:
            if not self.stopping.is_set():
                log.exception("upkeep of %s failed; the next commit tries it again", partition)

    def _run_last(self, partition: str, task: Task) -> None:
        self._run(partition, task)
        with self._mutex:
            self._busy.discard(partition)

    def close(self) -> None:
        """Breaks off jobs, and finishes collections that are due."""
        self.stopping.set()
        self._pool.shutdown(wait=True)
