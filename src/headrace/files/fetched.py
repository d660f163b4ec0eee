"""What was read of files that are elsewhere: from the disk cache, and from shared storage."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from headrace.files.stretch import Stretch


@dataclass
class Fetched:
    """Counts. Threads: the caller's lock guards `add`; a count that `take` misses is in the next one."""

    cached_bytes: int = 0  # present on the disk
    fetched_bytes: int = 0  # from shared storage
    requests: int = 0
    fetch_ms: float = 0.0  # in which readers waited for requests
    evicted_bytes: int = 0

    def __post_init__(self) -> None:
        self.stretch = Stretch()  # when requests ran; it is no count, so no field

    def add(self, more: Fetched) -> None:
        self.cached_bytes += more.cached_bytes
        self.fetched_bytes += more.fetched_bytes
        self.requests += more.requests
        self.fetch_ms += more.fetch_ms
        self.evicted_bytes += more.evicted_bytes

    def take(self) -> Fetched:
        """The counts so far; they begin again at zero."""
        counts = replace(self)
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) - getattr(counts, field.name))
        counts.stretch = self.stretch.take()
        return counts
