"""Ranged requests in parallel: a pool of threads for all files of a host, and what the requests cost.

Invariants: bytes under way never exceed `in_flight_bytes`, except that one request always runs. The latency
is an estimate from finished requests.
Threads: any. A task of this pool never waits for another one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.files.ranges import gap_bytes

PARALLEL = 512  # ranges under way
THREADS = 64  # each of them has a call of several ranges under way
IN_FLIGHT_BYTES = 32 << 20
_LATENCY_MS = 20.0  # before the first request: that of an object store
_BYTES_PER_MS = 625_000.0  # 5 Gb/s
_SMALL_BYTES = 64 << 10  # a request of at most this size shows the latency
_LATEST = 64  # requests that show the latency
T = TypeVar("T")


class Costs:
    """Estimates of what a request costs."""

    def __init__(self) -> None:
        self.latency_ms, self.bytes_per_ms = _LATENCY_MS, _BYTES_PER_MS
        self._lasted_ms: deque[float] = deque(maxlen=_LATEST)

    def add(self, nbytes: int, lasted_ms: float) -> None:
        """Takes a finished request into account: the fastest of the latest small ones shows the latency."""
        if nbytes <= _SMALL_BYTES:
            self._lasted_ms.append(lasted_ms)
            self.latency_ms = min(self._lasted_ms)


class Fetcher:
    """Runs the ranged requests of a host."""

    def __init__(
        self, parallel: int = PARALLEL, in_flight_bytes: int = IN_FLIGHT_BYTES, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._clock, self.parallel, self._room = clock, parallel, in_flight_bytes
        self._requests = ThreadPoolExecutor(min(THREADS, parallel), "fetch")
        self._plans = ThreadPoolExecutor(min(16, parallel), "fetch-plan")
        self._free = threading.Condition()
        self._in_flight = 0
        self.costs = Costs()

    @property
    def gap_bytes(self) -> int:
        """Gaps up to this size are read rather than skipped."""
        return gap_bytes(self.costs.latency_ms, self.costs.bytes_per_ms, self.parallel)

    def run(self, requests: Iterable[tuple[int, Callable[[], None]]], *, once: bool = False) -> None:
        """Runs requests, each with its bytes, in parallel; raises the first error once all ended.

        Those of a scan (`once`) leave half of the bytes under way to all others, which batches wait for.
        """
        room = self._room // 2 if once else self._room
        submitted = [self._submit(nbytes, request, room) for nbytes, request in requests]
        errors = [future.exception() for future in submitted]
        for error in errors:
            if error is not None:
                raise error

    def together(self, requests: Sequence[Callable[[], None]]) -> None:
        """Runs small requests in parallel; raises the first error once all ended."""
        self.run([(_SMALL_BYTES + 1, request) for request in requests])

    def beside(self, plan: Callable[[], T]) -> Future[T]:
        """Runs a function that itself runs requests, in another thread."""
        return self._plans.submit(plan)

    def close(self) -> None:
        self._plans.shutdown(wait=False, cancel_futures=True)
        self._requests.shutdown(wait=False, cancel_futures=True)

    def _submit(self, nbytes: int, request: Callable[[], None], room: int) -> Future[None]:
        with self._free:
            while self._in_flight and self._in_flight + nbytes > room:
                self._free.wait()
            self._in_flight += nbytes
        try:
            return self._requests.submit(self._run, nbytes, request)
        except BaseException:
            self._done(nbytes)
            raise

    def _run(self, nbytes: int, request: Callable[[], None]) -> None:
        begun_ms = self._clock.monotonic_ms()
        try:
            request()
            self.costs.add(nbytes, self._clock.monotonic_ms() - begun_ms)
        finally:
            self._done(nbytes)

    def _done(self, nbytes: int) -> None:
        with self._free:
            self._in_flight -= nbytes
            self._free.notify_all()
