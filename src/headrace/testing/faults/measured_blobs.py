"""Shared storage to measure with: no local paths, a latency per request, a shared bandwidth, a request log.

A host with the service `headrace.testing.faults.measured_blobs:open_measured?latency_ms=23&gbps=5` has such
storage in the place of a directory. `log=<path>` appends every request to a file, one JSON object per line.

Invariants: a request ends after its latency and after all bytes that entered the link before its own.
Threads: any; a lock guards the link's timeline and the log.
"""

from __future__ import annotations

import builtins
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.blob.base import Blobs, IsDamaged, Range, always, check_name
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.host.state.service import PartitionService, open_service

Cut = Callable[[str, bytes], bytes]  # the reply to a read, by name: tests cut or change it


@dataclass(frozen=True)
class Request:
    """One request, with the bytes that crossed the link."""

    operation: str
    name: str
    nbytes: int


class Link:
    """The way to storage: every request waits for its latency and for its bytes."""

    def __init__(self, latency_ms: float, gbps: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._latency_ms, self._bytes_per_ms, self._clock = latency_ms, gbps * 125_000, clock
        self._free_ms = 0.0  # when the bytes that entered so far have passed
        self._lock = threading.Lock()

    def carry(self, *sizes: int) -> None:
        """Returns when requests of so many bytes, sent at the same time, have ended."""
        now_ms, nbytes = self._clock.monotonic_ms(), sum(sizes)
        with self._lock:
            begins_ms = max(now_ms + self._latency_ms, self._free_ms)
            ends_ms = begins_ms + nbytes / self._bytes_per_ms if self._bytes_per_ms else begins_ms
            self._free_ms = ends_ms
        if ends_ms > now_ms:
            self._clock.sleep_ms(ends_ms - now_ms)


def as_stored(name: str, reply: bytes) -> bytes:
    """Replies are right."""
    return reply


class MeasuredBlobs:
    """Another location behind a link, without local paths."""

    in_place = False

    def __init__(
        self, blobs: Blobs, link: Link | None = None, log: Path | None = None, cut: Cut = as_stored
    ) -> None:
        self._blobs, self._link, self._log, self.cut = blobs, link or Link(0.0, 0.0), log, cut
        self.requests: list[Request] = []
        self._lock = threading.Lock()

    @property
    def root(self) -> str:
        return self._blobs.root

    def put_if_absent(self, name: str, data: bytes) -> None:
        self._carry("put", name, len(data))
        self._blobs.put_if_absent(name, data)

    def staging(self, name: str) -> Path:
        return self._blobs.staging(name)

    def put_file(self, name: str, path: Path) -> None:
        self._carry("put", name, path.stat().st_size)
        self._blobs.put_file(name, path)

    def get(self, name: str) -> bytes:
        data = self._blobs.get(name)
        self._carry("get", name, len(data))
        return self.cut(name, data)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        data = self._blobs.get_range(name, start, length)
        self._carry("range", name, len(data))
        return self.cut(name, data)

    ranges_at_once = 10  # as the client of object stores has it

    def get_ranges(self, name: str, ranges: Sequence[Range]) -> builtins.list[bytes]:
        """Every range is a request of its own; they cross the link at the same time."""
        replies = self._blobs.get_ranges(name, ranges)
        self._note([Request("range", name, len(reply)) for reply in replies])
        self._link.carry(*map(len, replies))
        return [self.cut(name, reply) for reply in replies]

    def size(self, name: str) -> int:
        self._carry("head", name, 0)
        return self._blobs.size(name)

    def list(self, prefix: str) -> list[str]:
        names = self._blobs.list(prefix)
        self._carry("list", prefix, 100 * len(names))
        return names

    def delete(self, name: str) -> None:
        self._carry("delete", name, 0)
        self._blobs.delete(name)

    def sweep(self, prefix: str) -> None:
        self._blobs.sweep(prefix)

    def local_path(self, name: str) -> Path | None:
        check_name(name)
        return None

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        check_name(name)
        return False

    def counts(self) -> Counter[str]:
        """Requests so far, by operation."""
        with self._lock:
            return Counter(request.operation for request in self.requests)

    def nbytes(self) -> int:
        """Bytes that crossed the link so far."""
        with self._lock:
            return sum(request.nbytes for request in self.requests)

    def clear(self) -> None:
        with self._lock:
            self.requests.clear()

    def _carry(self, operation: str, name: str, nbytes: int) -> None:
        self._note([Request(operation, name, nbytes)])
        self._link.carry(nbytes)

    def _note(self, requests: Sequence[Request]) -> None:
        with self._lock:
            self.requests.extend(requests)
            if self._log is not None:
                with self._log.open("a") as file:
                    file.writelines(json.dumps(asdict(request)) + "\n" for request in requests)


def open_measured(
    memory_bytes: int,
    local: Path,
    *,
    latency_ms: str = "23",
    gbps: str = "5",
    log: str = "",
    disk: str = "",
    fill: str = "ranges",
) -> PartitionService:
    """The service of a host whose directories are far away."""
    link = Link(float(latency_ms), float(gbps))

    def far(blobs: Blobs) -> Blobs:
        return MeasuredBlobs(blobs, link, Path(log) if log else None)

    return open_service(memory_bytes, local, disk=disk, fill=fill, wrap=far)
