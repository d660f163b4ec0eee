"""Opens a state location by its scheme: `s3://…` is an object store, anything else a directory.

Threads: any. Object stores stay open so that their connections are reused; a lock guards them and is held
while a store is opened for the first time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.copies import LocalCopies
from headrace.blob.files import FileBlobs
from headrace.blob.patient import PatientBlobs
from headrace.clock import Clock, SystemClock

Wrap = Callable[[Blobs], Blobs]


def is_object_store(location: str) -> bool:
    """Whether a location is an object store rather than a directory."""
    return location.startswith("s3://")


class Locations:
    """The locations that a host uses. `wrap` is applied below the retries: tests inject faults there."""

    def __init__(
        self,
        local: Path,
        *,
        wrap: Wrap | None = None,
        clock: Clock | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.local, self._wrap, self._clock = local, wrap, clock or SystemClock()
        self._environment = environment
        self._open: dict[str, PatientBlobs] = {}
        self._lock = threading.Lock()

    def open(self, location: str, *, create: bool) -> Blobs:
        """Opens the blobs at `location`; only `create` makes a missing directory."""
        if is_object_store(location):
            return self._cached(location, lambda: self._objects(location))
        files = FileBlobs.open(Path(location), create=create)
        return files if self._wrap is None else self._cached(location, lambda: files)

    def waits_ms(self) -> dict[str, float]:
        """How long calls have been waiting for storage, by location; empty when none waits."""
        waited = {location: blobs.waited_ms for location, blobs in list(self._open.items())}
        return {location: round(ms) for location, ms in waited.items() if ms > 0}

    def _objects(self, location: str) -> Blobs:
        # loads the client only where an object store is used
        from headrace.blob.objects import ObjectBlobs, endpoint_of

        # The buckets of two stores may have the same name.
        copies = LocalCopies.open(self.local, f"{endpoint_of(self._environment)} {location}")
        copies.drop_unused(self._clock.now_ms())
        return ObjectBlobs.open(location, copies, self._environment)

    def _cached(self, location: str, opened: Callable[[], Blobs]) -> PatientBlobs:
        with self._lock:
            if location not in self._open:
                blobs = opened()
                wrapped = blobs if self._wrap is None else self._wrap(blobs)
                self._open[location] = PatientBlobs(wrapped, self._clock)
            return self._open[location]
