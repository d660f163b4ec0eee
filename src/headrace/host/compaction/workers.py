"""The scheduler of compactions: round robin over compactors that work, none that just failed.

Invariants: a compactor that failed gets no job for a while, twice as long after every further failure.
Threads: any; a lock guards turn and health. A job waits in the thread that asks.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import HostUnavailable, TryAgain, from_json
from headrace.plan.times import TIMES, Times
from headrace.wire.compaction import CompactionRequest, address_of
from headrace.wire.frames import receive_frame, send_frame

log = logging.getLogger("headrace.compaction")

_LOOK_S = 0.2


class Declined(HostUnavailable):
    """The compactor has not begun the job: it is gone, or has no room."""


@dataclass
class Worker:
    """One compactor."""

    address: str
    failures: int = 0  # in a row
    barred_ms: float = 0.0  # until then it gets no job


class Workers:
    """All compactors of a host."""

    def __init__(
        self, addresses: Sequence[str], secret: str, *, times: Times = TIMES, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._workers = [Worker(address) for address in addresses]
        self._secret, self._times, self._clock = secret, times, clock
        self._turn, self._mutex = 0, threading.Lock()

    def in_turn(self) -> Iterator[Worker]:
        """Those that may work now, each once, beginning with another one at each call."""
        with self._mutex:
            first, self._turn = self._turn, (self._turn + 1) % len(self._workers)
        for worker in (*self._workers[first:], *self._workers[:first]):
            if worker.barred_ms <= self._clock.monotonic_ms():
                yield worker

    def failed(self, worker: Worker) -> None:
        """Bars a compactor for a while."""
        with self._mutex:
            worker.failures += 1
            barred_s = self._times.compactor_barred_s * 2.0 ** (worker.failures - 1)
            barred_ms = 1000 * min(self._times.compactor_barred_max_s, barred_s)
            worker.barred_ms = self._clock.monotonic_ms() + barred_ms

    def worked(self, worker: Worker) -> None:
        with self._mutex:
            worker.failures = 0

    def answer(self, worker: Worker, request: CompactionRequest, stop: threading.Event) -> dict[str, Any]:
        """The compactor's answer; raises `Declined` if it did not begin, `TryAgain` once `stop` is set."""
        try:
            place = address_of(worker.address)
            peer = socket.create_connection(place, self._times.compactor_connect_s)
        except OSError as error:
            self.failed(worker)
            raise Declined(f"no connection to the compactor {worker.address}: {error}") from None
        with peer:
            send_frame(peer, {"secret": self._secret, "compact": request.to_json()})
            answer = self._awaited(peer, stop)
        if "busy" in answer:
            raise Declined(f"the compactor {worker.address} has no room")
        if "error" in answer:
            raise from_json(answer["error"]) or TryAgain(str(answer["error"]))
        return answer

    def _awaited(self, peer: socket.socket, stop: threading.Event) -> dict[str, Any]:
        began_ms = seen_ms = self._clock.monotonic_ms()
        peer.settimeout(self._times.compactor_silent_s)
        while True:
            if stop.is_set():
                raise TryAgain("the compaction was stopped", hint="it starts again after the next commit")
            readable, _, _ = select.select([peer], [], [], _LOOK_S)
            now_ms = self._clock.monotonic_ms()
            if now_ms - seen_ms > 1000 * self._times.compactor_silent_s:
                raise HostUnavailable("the compactor shows no sign of life")
            if now_ms - began_ms > 1000 * self._times.compactor_job_s:
                raise HostUnavailable("the compactor takes too long")
            if readable:
                seen_ms, frame = now_ms, receive_frame(peer)
                if "alive" not in frame:
                    return frame
