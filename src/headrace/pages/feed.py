"""Where a view's picture comes from: this process, another one, or a history on disk.

Threads: viewers call `Feed.picture` from the server's thread; a lock guards the following of records.
"""

from __future__ import annotations

import threading
from typing import Protocol

from headrace.clock import Clock, SystemClock
from headrace.errors import HostUnavailable
from headrace.monitor.door import ask
from headrace.monitor.history import read_history
from headrace.monitor.journal import Journal
from headrace.monitor.picture.picture import Picture
from headrace.monitor.records import Record

PERIOD_MS = 900.0


class Source(Protocol):
    """Gives records after a number."""

    live: bool

    def since(self, number: int) -> tuple[int, list[Record]]:
        """The number to go on from, and the records."""


class Here:
    """The application of this process."""

    live = True

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def since(self, number: int) -> tuple[int, list[Record]]:
        return self._journal.since(number)


class Elsewhere:
    """An application of another process on this machine."""

    def __init__(self, socket: str) -> None:
        self.live = True
        self._socket = socket

    def since(self, number: int) -> tuple[int, list[Record]]:
        try:
            return ask(self._socket, number)
        except HostUnavailable:
            if number == 0:
                raise
            self.live = False  # the application has ended; what was seen stays
            return number, []


class Recorded:
    """The history of a checkpoint; a query that still runs goes on writing it."""

    live = False

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        read_history(checkpoint)  # raises where there is none

    def since(self, number: int) -> tuple[int, list[Record]]:
        records = read_history(self._checkpoint)
        return len(records), records[number:] if number <= len(records) else records


class Feed:
    """One picture for all viewers, brought up to date when one of them looks."""

    def __init__(self, source: Source, clock: Clock | None = None) -> None:
        self._source = source
        self._clock = clock or SystemClock()
        self._picture = Picture()
        self._number = 0
        self._followed_ms = float("-inf")
        self._lock = threading.Lock()

    @property
    def live(self) -> bool:
        """Whether the application is being watched, and not its history."""
        return self._source.live

    def picture(self) -> Picture:
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._followed_ms >= PERIOD_MS:
                self._followed_ms = now_ms
                self._number, records = self._source.since(self._number)
                self._picture.take(records)
            return self._picture
