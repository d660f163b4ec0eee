"""Whether a start of a query is still the newest: checked before every commit, at storage now and then.

Invariants: a commit passes only with a look at the runs that began less than `run_fresh_s` before it. A
start that was overtaken never passes again. All partitions of a host share the guard of a start, so the
number of looks does not grow with the partitions.
Threads: any; one lock, held during a look that a commit waits for.
"""

from __future__ import annotations

import threading

from headrace.blob.base import Blobs
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.runs import ensure_current
from headrace.errors import Fenced, HeadraceError
from headrace.plan.times import TIMES


class RunGuard:
    """Guards the commits of one start on one host; made right after the start's run was claimed."""

    def __init__(self, blobs: Blobs, query: str, run: int, crew: Crew) -> None:
        self.run = run
        self._blobs, self._query, self._crew = blobs, query, crew
        self._lock = threading.Lock()
        self._looked_ms = crew.clock.monotonic_ms()
        self._fenced: Fenced | None = None

    def refresh(self) -> None:
        """Looks in the background if a commit would have to wait for a look."""
        if self._is_stale() and not self._lock.locked():
            self._crew.uploads.submit(self._look_quietly)

    def check(self) -> None:
        """Raises `Fenced` when a newer start has the query."""
        with self._lock:
            if self._fenced is None and self._is_stale():
                self._look()
            if self._fenced is not None:
                raise Fenced(self._fenced.message, hint=self._fenced.hint)

    @property
    def is_locked(self) -> bool:
        """Whether a look is under way; for simulations."""
        return self._lock.locked()

    def _is_stale(self) -> bool:
        return self._crew.clock.monotonic_ms() - self._looked_ms > TIMES.run_fresh_s * 1000

    def _look(self) -> None:
        begun_ms = self._crew.clock.monotonic_ms()
        try:
            ensure_current(self._blobs, self._query, self.run)
        except Fenced as error:
            self._fenced = error
        self._looked_ms = begun_ms

    def _look_quietly(self) -> None:
        try:
            with self._lock:
                if self._is_stale():
                    self._look()
        except HeadraceError:  # the commit looks again, and reports it
            return
