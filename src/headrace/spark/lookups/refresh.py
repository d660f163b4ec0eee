"""When a static table is read again: a thread of the driver writes the next generation when it is due.

Invariants: a generation that cannot be read leaves the one before in use; the reason is logged.
Threads: one per table. It ends with the Spark application, or once no query of the session runs any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.spark.lookups.generations import Generations
from headrace.spark.lookups.table import Read

CHECK_MS = 10_000  # how often the version of a table is read, without an interval
Version = Callable[[], object]
log = logging.getLogger("headrace.lookup")


@dataclass
class Refresh:
    """Decides, from a clock and versions, when the table is read again."""

    every_ms: int | None
    version: Version | None
    read_at_ms: float
    read_version: object = None

    @property
    def pause_ms(self) -> int:
        return CHECK_MS if self.every_ms is None else self.every_ms

    def is_due(self, now_ms: float) -> bool:
        """Whether to read the table now; with a version, only if that has changed."""
        if now_ms - self.read_at_ms < self.pause_ms:
            return False
        self.read_at_ms = now_ms
        if self.version is None:
            return self.every_ms is not None
        before, self.read_version = self.read_version, self.version()
        return bool(before != self.read_version)


class Refresher:
    """Writes generations while queries of the session run."""

    def __init__(
        self, read: Read, generations: Generations, refresh: Refresh, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._read, self._generations, self._refresh, self._clock = read, generations, refresh, clock
        self._ran = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="headrace-lookup", daemon=True).start()

    def _run(self) -> None:
        while self._is_needed():
            self.step()
            self._clock.sleep_ms(min(self._refresh.pause_ms, 1000))

    def step(self) -> bool:
        """Writes a generation if one is due; returns whether it did."""
        try:
            if not self._refresh.is_due(self._clock.monotonic_ms()):
                return False
            self._generations.write(self._read())
        except Exception as error:  # the user's function and any data source may raise anything
            log.warning("the table in %s was not read again: %s", self._generations.folder, error)
            return False
        return True

    def _is_needed(self) -> bool:
        """A query runs, or none has run so far."""
        try:
            running = bool(self._generations.spark.streams.active)
        except (Py4JError, PySparkException, AttributeError, ConnectionError):
            return False  # the application has ended
        self._ran = self._ran or running
        return running or not self._ran
