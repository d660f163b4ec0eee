"""Blobs that wait for storage which throttles, times out or is away, instead of failing the batch.

A request that is known not to have been applied, or that does no harm twice, is repeated with growing waits
until it works or `Patience.limit_ms` has passed; then its last error is raised. A write of unknown fate
(`MaybeApplied`) is not repeated here: `blob/retry.py` reads it back, through this, and so waits as well.

Invariants: never two requests without a wait in between; whoever waits says so in the log, at first and
then every `tell_ms`, and says when it is over. Threads: any; a lock guards the account of who waits.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.blob.base import Blobs
from headrace.clock import Clock
from headrace.errors import MaybeApplied, TryAgain

log = logging.getLogger("headrace.blob")
T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """How long to wait between tries: doubling from `first_ms` to `last_ms`, up to `limit_ms` in all."""

    first_ms: float = 50.0
    last_ms: float = 5_000.0
    limit_ms: float = 300_000.0
    tell_ms: float = 10_000.0

    def delay_ms(self, failures: int, jitter: float) -> float:
        """The wait after so many failures; `jitter` from 0 to 1 keeps many waiters apart."""
        return min(self.last_ms, self.first_ms * 2.0 ** min(failures - 1, 30)) * (0.5 + 0.5 * jitter)


class PatientBlobs:
    """Another location, with patience."""

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
    def waited_ms(self) -> float:
        """For how long the oldest call that waits now has been waiting."""
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

    def size(self, name: str) -> int:
        return self._until_done(lambda: self._blobs.size(name))

    def list(self, prefix: str) -> list[str]:
        return self._until_done(lambda: self._blobs.list(prefix))

    def delete(self, name: str) -> None:
        self._until_done(lambda: self._blobs.delete(name), twice_is_fine=True)

    def sweep(self, prefix: str) -> None:
        self._until_done(lambda: self._blobs.sweep(prefix))

    def local_path(self, name: str) -> Path | None:
        return self._until_done(lambda: self._blobs.local_path(name))

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
                    done = request()
                    break
                except repeated as error:
                    if wait.is_over():
                        raise
                    wait.tell(error)
            log.info("%s is back after %.1f s", self.root, wait.waited_ms / 1000)
            return done

    @contextmanager
    def _waits(self) -> Iterator[_Wait]:
        """An entry in the account of who waits, until the block ends."""
        wait = _Wait(self.root, self._clock, self._patience)
        with self._lock:
            self._waiting.append(wait)
        try:
            yield wait
        finally:
            with self._lock:
                self._waiting.remove(wait)


class _Wait:
    """One call that waits."""

    def __init__(self, root: str, clock: Clock, patience: Patience) -> None:
        self._root, self._clock, self._patience = root, clock, patience
        self._began_ms = self._told_ms = clock.monotonic_ms()

    @property
    def waited_ms(self) -> float:
        return self._clock.monotonic_ms() - self._began_ms

    def is_over(self) -> bool:
        return self.waited_ms >= self._patience.limit_ms

    def tell(self, error: Exception) -> None:
        """Say again that somebody waits, now and then."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms >= self._patience.tell_ms:
            self._told_ms = now_ms
            log.warning("waiting for %s since %.0f s: %s", self._root, self.waited_ms / 1000, error)
