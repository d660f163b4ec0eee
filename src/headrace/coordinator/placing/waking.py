"""Starting the hosts of all executors: a Spark job, because only a task can start its machine's host.

Invariants: at most one job runs at a time; requests that arrive meanwhile share it.
Threads: the caller holds the lock of the machines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from headrace.plan.times import TIMES

log = logging.getLogger("headrace.coordinator")

StartHosts = Callable[[], "Future[None]"]


class Waking:
    """The newest job; `start` begins one."""

    def __init__(self, start: StartHosts) -> None:
        self._start = start
        self._job: Future[None] | None = None
        self._begun_s = self._ended_s = float("-inf")

    def has_tried(self, since_s: float, now_s: float) -> bool:
        """Whether a job that began after `since_s` is over, and every new host has sent a heartbeat."""
        if self._job is not None and self._job.done():
            self._finish(self._job, now_s)
        if self._job is None and self._begun_s < since_s:
            self._job, self._begun_s = self._start(), now_s
        beat_s = TIMES.heartbeat_s + TIMES.heartbeat_answer_s
        return self._job is None and now_s - self._ended_s >= beat_s

    def _finish(self, job: Future[None], now_s: float) -> None:
        self._job, self._ended_s = None, now_s
        error = job.exception()
        if error is not None:
            log.warning("hosts could not be started on all machines: %s", error)
