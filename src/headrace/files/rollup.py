"""A roll-up: a host's records of the files of a query's partitions, in one object, for the next start.

    <query>/runs/rollup-v<version>-<write id>

It has each partition's newest manifest and the ends of its segments. Partition manifests stay the truth: a
manifest of a roll-up counts only under the name that a LIST of the partition has returned. The end of a
segment counts only with the checksum that its manifest names. So an old, lost or foreign roll-up costs
requests and nothing else.

Invariants: a roll-up is written at most every `EVERY_MS`, behind commits; the host's one before goes then.
Threads: any; the lock guards the entries, and no request runs under it.
"""

from __future__ import annotations

import base64
import logging
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headrace.blob.base import Blobs
from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.format.names import blob_name, home_of, runs_folder
from headrace.format.record import decode_record, encode_record

log = logging.getLogger("headrace.cache")
EVERY_MS = 10_000.0
READ_MOST = 16  # roll-ups of a query: one per host
OLD_VERSIONS = 20  # a roll-up that is behind by more is removed
_KIND, _FORMAT = "rollup", 1
_NAME = re.compile(r"rollup-v(\d{12})-([0-9a-f]{8})", re.ASCII)


def _one_by_one(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


@dataclass(frozen=True)
class Known:
    """One partition: its newest manifest, and the ends of its segments by name."""

    version: int
    manifest: str  # its name in the partition
    data: bytes
    ends: Mapping[str, bytes]

    def body(self) -> dict[str, Any]:
        ends = {name: base64.b64encode(end).decode() for name, end in self.ends.items()}
        return {"version": self.version, "name": self.manifest, "data": self.data.decode(), "ends": ends}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Known:
        ends = {name: base64.b64decode(end) for name, end in body["ends"].items()}
        return cls(int(body["version"]), body["name"], body["data"].encode(), ends)


@dataclass
class RollUp:
    """The roll-ups of one query, as one host reads and writes them."""

    blobs: Blobs
    query: str
    clock: Clock
    reading: Future[None] | None = None  # of the roll-ups that are there
    together: Callable[[Sequence[Callable[[], None]]], None] = _one_by_one  # runs requests
    _known: dict[str, Known] = field(default_factory=dict)  # by partition, from storage
    _own: dict[str, Known] = field(default_factory=dict)  # by partition, of this host
    _others: list[str] = field(default_factory=list)
    _written: str = ""
    _written_ms: float = float("-inf")
    _is_due: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def load(self) -> None:
        """Reads what hosts have written; trouble means that nothing is known."""
        try:
            names = [name for name in self.blobs.list(f"{runs_folder(self.query)}rollup-") if _parsed(name)]
            self.together([partial(self._read, name) for name in sorted(names)[-READ_MOST:]])
            self._others = names
        except (HeadraceError, KeyError, ValueError) as error:
            log.warning("no roll-up of %s was read: %s", self.query, error)

    def _read(self, name: str) -> None:
        self._take(decode_record(_KIND, _FORMAT, self.blobs.get(name), name))

    def _take(self, body: Mapping[str, Any]) -> None:
        partitions = {prefix: Known.of(one) for prefix, one in body["partitions"].items()}
        with self._lock:
            for prefix, one in partitions.items():
                if prefix not in self._known or self._known[prefix].version <= one.version:
                    self._known[prefix] = one

    def manifest(self, prefix: str, name: str) -> bytes | None:
        """The manifest of that very name; None where it is not known."""
        known = self._of(prefix)
        return known.data if known is not None and known.manifest == name else None

    def end(self, prefix: str, file_id: str) -> bytes | None:
        """The end of a segment, to be verified by its checksum; None where it is not known.

        A partition in a new layout names segments of older ones, whose own records have their ends.
        """
        name = blob_name(prefix, file_id)
        home = home_of(name)
        places = [(prefix, file_id), (home, name.removeprefix(f"{home}/"))]
        ends = (known.ends.get(key) for place, key in places if (known := self._of(place)) is not None)
        return next((end for end in ends if end is not None), None)

    def _of(self, prefix: str) -> Known | None:
        if self.reading is not None:
            self.reading.exception()
        with self._lock:
            return self._known.get(prefix)

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def offer(self, prefix: str, known: Known) -> None:
        """Takes the newest version of a partition into the next roll-up."""
        with self._lock:
            self._own[prefix] = known
            self._is_due = True

    def write(self, *, now: bool = False) -> None:
        """Writes a roll-up if one is due, and removes those that it makes needless."""
        with self._lock:
            clock_ms = self.clock.monotonic_ms()
            if not self._is_due or not (now or clock_ms - self._written_ms >= EVERY_MS):
                return
            self._is_due, self._written_ms = False, clock_ms
            own, before = dict(self._own), self._written
        version = max(known.version for known in own.values())
        # Partitions reach a version one after another: a version may need several roll-ups.
        name = f"{runs_folder(self.query)}rollup-v{version:012d}-{uuid.uuid4().hex[:8]}"
        body = {"partitions": {prefix: known.body() for prefix, known in own.items()}}
        try:
            self.blobs.put_if_absent(name, encode_record(_KIND, _FORMAT, body))
            self._written = name
            for old in (before, *self._old(version)):
                if old:
                    self.blobs.delete(old)
        except HeadraceError as error:
            log.warning("the roll-up %s was not written: %s", name, error)

    def _old(self, version: int) -> list[str]:
        """Roll-ups of earlier hosts that are far behind."""
        with self._lock:
            old = [name for name in self._others if _version(name) + OLD_VERSIONS < version]
            self._others = [name for name in self._others if name not in old]
        return old


def _parsed(name: str) -> re.Match[str] | None:
    return _NAME.fullmatch(name.rpartition("/")[2])


def _version(name: str) -> int:
    match = _parsed(name)
    return int(match[1]) if match else 0
