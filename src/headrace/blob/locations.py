"""Opens a state location by its scheme: `s3://…` and `az://…` are object stores, anything else a directory.

Threads: any. Object stores stay open so that their connections are reused; a lock guards them and is held
while a store is opened for the first time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.cached import Admits, CachedBlobs, any_size
from headrace.blob.clouds import cloud_of
from headrace.blob.copies import LocalCopies
from headrace.blob.files import FileBlobs
from headrace.blob.patient import PatientBlobs
from headrace.clock import Clock, SystemClock

Wrap = Callable[[Blobs], Blobs]


def is_object_store(location: str) -> bool:
    """Whether a location is an object store rather than a directory."""
    return cloud_of(location) is not None


class Locations:
    """The locations that a host uses. `wrap` is applied below the retries: tests inject faults there."""

    def __init__(
        self,
        local: Path,
        *,
        wrap: Wrap | None = None,
        clock: Clock | None = None,
        environment: Mapping[str, str] = os.environ,
        copies_directories: bool = False,
        admits: Admits = any_size,
        whole: bool = False,
    ) -> None:
        self.local, self._wrap, self._clock = local, wrap, clock or SystemClock()
        self._environment, self._admits, self._whole = environment, admits, whole
        self._copies_directories = copies_directories  # whether directories are read through local copies
        self._open: dict[str, Blobs] = {}
        self._patient: dict[str, PatientBlobs] = {}
        self._lock = threading.Lock()

    def open(self, location: str, *, create: bool) -> Blobs:
        """Opens the blobs at `location`; only `create` makes a missing directory."""
        if is_object_store(location):
            return self._cached(location, lambda: self._objects(location))
        files = FileBlobs.open(Path(location), create=create)
        if self._wrap is None and not self._copies_directories:
            return files
        return self._cached(location, lambda: files)

    def waits_ms(self) -> dict[str, float]:
        """How long calls have been waiting for storage, by location; empty when none waits."""
        waited = {location: blobs.waited_ms for location, blobs in list(self._patient.items())}
        return {location: round(ms) for location, ms in waited.items() if ms > 0}

    def _objects(self, location: str) -> Blobs:
        # loads the client only where an object store is used
        from headrace.blob.objects import ObjectBlobs

        return ObjectBlobs.open(location, self._environment)

    def _cached(self, location: str, opened: Callable[[], Blobs]) -> Blobs:
        with self._lock:
            if location not in self._open:
                blobs = opened()
                wrapped = blobs if self._wrap is None else self._wrap(blobs)
                patient = PatientBlobs(wrapped, self._clock)
                in_place = patient.in_place and not self._copies_directories
                self._patient[location] = patient
                self._open[location] = patient if in_place else self._with_copies(location, patient)
            return self._open[location]

    def _with_copies(self, location: str, blobs: Blobs) -> Blobs:
        """The buckets of two stores may have the same name, so endpoint and account are a part of it."""
        cloud = cloud_of(location)
        store = cloud.identity(self._environment) if cloud is not None else ""
        copies = LocalCopies.open(self.local, f"{store} {location}")
        copies.drop_unused(self._clock.now_ms())
        return CachedBlobs(blobs, copies, self._admits, whole=self._whole)
