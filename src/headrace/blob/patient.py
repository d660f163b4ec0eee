"""Blobs that wait for storage that throttles, times out or is unreachable, instead of failing the batch.

A request is repeated with growing waits if it was not applied, or if applying it twice does no harm. After
`Patience.limit_ms` its last error is raised. A write with an unknown outcome (`MaybeApplied`) is not
repeated: `blob/retry.py` reads it back through this class, so it waits as well.

Invariants: a wait separates any two requests. A wait is logged when it begins, every `log_every_ms`, and
when it ends.
Threads: any; a lock guards the list of waits.
"""

from __future__ import annotations

import builtins
import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.blob.base import Blobs, IsDamaged, Range, always
from headrace.clock import Clock
from headrace.errors import MaybeApplied, TryAgain
from headrace.plan.times import TIMES

log = logging.getLogger("headrace.blob")
T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """The waits between tries: doubling from `first_ms` to `last_ms`, up to `limit_ms` in all."""

    first_ms: float = 50.0
    last_ms: float = TIMES.storage_pause_s * 1000
    limit_ms: float = TIMES.storage_patience_s * 1000
    log_every_ms: float = TIMES.storage_report_s * 1000

    def delay_ms(self, failures: int, jitter: float) -> float:
        """The wait after `failures` failures; `jitter` from 0 to 1 spreads the requests of many waiting
        calls.
        """
        return min(self.last_ms, self.first_ms * 2.0 ** min(failures - 1, 30)) * (0.5 + 0.5 * jitter)


class PatientBlobs:
    """Another location, with repeated requests."""

    def __init__(
        self,
        blobs: Blobs,
        clock: Clock,
        patience: Patience | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._blobs, self._clock, self._jitter = blobs, clock, jitter
        self._patience = patience or Patience()
        self._lock = threading.Lock()
        self._waiting: list[_Wait] = []

    @property
    def root(self) -> str:
        return self._blobs.root

    @property
    def in_place(self) -> bool:
        return self._blobs.in_place

    @property
    def waited_ms(self) -> float:
        """How long the oldest waiting call has been waiting."""
        with self._lock:
            return max((wait.waited_ms for wait in self._waiting), default=0.0)

    def put_if_absent(self, name: str, data: bytes) -> None:
        self._until_done(lambda: self._blobs.put_if_absent(name, data))

    def staging(self, name: str) -> Path:
        return self._until_done(lambda: self._blobs.staging(name))

    def put_file(self, name: str, path: Path) -> None:
        self._until_done(lambda: self._blobs.put_file(name, path))

    def get(self, name: str) -> bytes:
        return self._until_done(lambda: self._blobs.get(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._until_done(lambda: self._blobs.get_range(name, start, length))

    @property
    def ranges_at_once(self) -> int:
        return self._blobs.ranges_at_once

    def get_ranges(self, name: str, ranges: Sequence[Range]) -> builtins.list[bytes]:
        return self._until_done(lambda: self._blobs.get_ranges(name, ranges))

    def size(self, name: str) -> int:
        return self._until_done(lambda: self._blobs.size(name))

    def list(self, prefix: str) -> list[str]:
        return self._until_done(lambda: self._blobs.list(prefix))

    def delete(self, name: str) -> None:
        self._until_done(lambda: self._blobs.delete(name), twice_is_fine=True)

    def sweep(self, prefix: str) -> None:
        self._until_done(lambda: self._blobs.sweep(prefix))

    def local_path(self, name: str) -> Path | None:
        return self._blobs.local_path(name)

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        return self._blobs.drop_copy(name, is_damaged)

    def _until_done(self, request: Callable[[], T], *, twice_is_fine: bool = False) -> T:
        repeated = (TryAgain, MaybeApplied) if twice_is_fine else (TryAgain,)
        try:
            return request()
        except repeated as error:
            log.warning("waiting for %s: %s", self.root, error)
        with self._waits() as wait:
            for failures in itertools.count(1):
                self._clock.sleep_ms(self._patience.delay_ms(failures, self._jitter()))
                try:
                    answer = request()
                    break
                except repeated as error:
                    if wait.is_over():
                        raise
                    wait.log_if_due(error)
            log.info("%s is back after %.1f s", self.root, wait.waited_ms / 1000)
            return answer

    @contextmanager
    def _waits(self) -> Iterator[_Wait]:
        """Registers a wait until the block ends."""
        wait = _Wait(self.root, self._clock, self._patience)
        with self._lock:
            self._waiting.append(wait)
        try:
            yield wait
        finally:
            with self._lock:
                self._waiting.remove(wait)


class _Wait:
    """One waiting call."""

    def __init__(self, root: str, clock: Clock, patience: Patience) -> None:
        self._root, self._clock, self._patience = root, clock, patience
        self._began_ms = self._logged_ms = clock.monotonic_ms()

    @property
    def waited_ms(self) -> float:
        return self._clock.monotonic_ms() - self._began_ms

    def is_over(self) -> bool:
        return self.waited_ms >= self._patience.limit_ms

    def log_if_due(self, error: Exception) -> None:
        """Logs the wait again if a log line is due."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._logged_ms >= self._patience.log_every_ms:
            self._logged_ms = now_ms
            log.warning("waiting for %s since %.0f s: %s", self._root, self.waited_ms / 1000, error)
