"""A host that does not answer: it is ended by its process id, and the next task starts another one.

A stopped or deadlocked process keeps its lock and its socket, and a task would wait for it without end. Its
transactions are not committed, so ending it loses nothing.
Invariants: only a process that holds the machine's `alive` lock and has not answered is ended.
Threads: any, in any number of processes.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from contextlib import suppress

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import HostUnavailable
from headrace.host.process.lifecycle import HostAddress, ensure_host, find_host
from headrace.host.process.settings import HostPaths, HostSettings
from headrace.plan.times import TIMES
from headrace.wire.frames import send_frame

log = logging.getLogger("headrace.host")


def answers(door: str, secret: str, within_s: float) -> bool:
    """Whether the host behind a door answers a ping; a closed door counts as an answer.

    A host that has ended is noticed by everybody who talks to it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(within_s)
        try:
            peer.connect(door)
            send_frame(peer, {"secret": secret, "ping": True})
            peer.recv(1)
        except (TimeoutError, BlockingIOError):  # the second: too many connections wait already
            return False
        except OSError:
            return True
    return True


def end_hung(settings: HostSettings, within_s: float) -> int | None:
    """Ends the machine's host if it does not answer; returns its process id then."""
    host = find_host(settings)
    if host is None or answers(host.door, settings.secret, within_s):
        return None
    _note(
        settings, f"the state host of {settings.machine}, process {host.pid}, does not answer: it is ended"
    )
    with suppress(ProcessLookupError):
        os.kill(host.pid, signal.SIGKILL)
    return host.pid


def _note(settings: HostSettings, text: str) -> None:
    """Logs a line, also at the end of the log of the host that cannot write it itself."""
    log.error("%s", text)
    with suppress(OSError), HostPaths.of(settings).log.open("a") as file:
        file.write(f"ERROR:headrace.host:{text}\n")


def answering_host(settings: HostSettings) -> HostAddress:
    """The machine's host, in place of one that did not answer."""
    end_hung(settings, TIMES.host_ping_s)
    return ensure_host(settings)


class HungWatch:
    """Pings the machine's host from `start` until `close`, and ends it if it hangs."""

    def __init__(self, settings: HostSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings, self._clock = settings, clock
        self._closed = threading.Event()
        self.ended: int | None = None  # process id of the host that hung

    def __enter__(self) -> HungWatch:
        threading.Thread(target=self._run, name="host-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _run(self) -> None:
        while self.ended is None and not self._clock.wait(self._closed, TIMES.host_watch_s * 1000):
            self.ended = end_hung(self._settings, TIMES.host_hung_s)


def ended(machine: str, pid: int) -> HostUnavailable:
    """The error for a batch whose host hung."""
    return HostUnavailable(
        f"the state host of {machine}, process {pid}, did not answer for {TIMES.host_hung_s:.0f} s and was "
        "ended",
        hint="the batch is not committed; Spark's retry, or a restart of the query, recovers it; what the "
        "host did last is in its log",
    )
