"""Blobs with the faults of real storage: a request is applied or not, reported or not, and may be slow.

Invariants: a write that raises `TryAgain` was not applied; one that raises `MaybeApplied` was or was not.
Reads and lists fail with `TryAgain` and never return wrong data. Operations on the local disk are neither
delayed nor failed. A lost write is passed to `lost`, which may apply it later, when no caller waits.
Threads: as the blobs underneath; `wait` and `next_outcome` are called once per request, in this order.
`slow_blobs.py` has latencies and outages.
"""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

from headrace.blob.base import Blobs, IsDamaged, Range, always
from headrace.errors import MaybeApplied, TryAgain


class Outcome(Enum):
    """The outcome of one operation: (applied, reported)."""

    DONE = (True, True)
    REFUSED = (False, True)
    REPLY_LOST = (True, False)
    REQUEST_LOST = (False, False)


NextOutcome = Callable[[str], Outcome]  # the argument is the operation: "put", "put_file", "delete", "read"
Wait = Callable[[str], None]  # the argument is the operation; returns when its request has arrived
Lost = Callable[[Callable[[], None]], None]  # the argument is a write that did not arrive


def all_done(operation: str) -> Outcome:
    """No faults."""
    return Outcome.DONE


def at_once(operation: str) -> None:
    """No latency."""


def for_good(write: Callable[[], None]) -> None:
    """A lost write never arrives."""


def seeded_outcomes(seed: int, rate: float) -> NextOutcome:
    """Faults at `rate`, the same ones for the same seed."""
    randomness = random.Random(seed)
    faults = [Outcome.REFUSED, Outcome.REPLY_LOST, Outcome.REQUEST_LOST]

    def next_outcome(operation: str) -> Outcome:
        return randomness.choice(faults) if randomness.random() < rate else Outcome.DONE

    return next_outcome


class FaultyBlobs:
    """Another location behind a faulty connection."""

    def __init__(
        self,
        blobs: Blobs,
        next_outcome: NextOutcome = all_done,
        wait: Wait = at_once,
        lost: Lost = for_good,
    ) -> None:
        self._blobs, self._next_outcome, self._wait, self._lost = blobs, next_outcome, wait, lost

    @property
    def root(self) -> str:
        return self._blobs.root

    @property
    def in_place(self) -> bool:
        return self._blobs.in_place

    def put_if_absent(self, name: str, data: bytes) -> None:
        self._write("put", name, lambda: self._blobs.put_if_absent(name, data))

    def staging(self, name: str) -> Path:
        return self._blobs.staging(name)

    def put_file(self, name: str, path: Path) -> None:
        self._write("put_file", name, lambda: self._blobs.put_file(name, path), path)

    def delete(self, name: str) -> None:
        self._write("delete", name, lambda: self._blobs.delete(name))

    def get(self, name: str) -> bytes:
        self._read(name)
        return self._blobs.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._read(name)
        return self._blobs.get_range(name, start, length)

    @property
    def ranges_at_once(self) -> int:
        return self._blobs.ranges_at_once

    def get_ranges(self, name: str, ranges: Sequence[Range]) -> builtins.list[bytes]:
        return [self.get_range(name, start, length) for start, length in ranges]

    def size(self, name: str) -> int:
        self._read(name)
        return self._blobs.size(name)

    def list(self, prefix: str) -> list[str]:
        self._read(prefix)
        return self._blobs.list(prefix)

    def sweep(self, prefix: str) -> None:
        self._blobs.sweep(prefix)

    def local_path(self, name: str) -> Path | None:
        return self._blobs.local_path(name)

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        return self._blobs.drop_copy(name, is_damaged)

    def _write(
        self, operation: str, name: str, write: Callable[[], None], path: Path | None = None
    ) -> None:
        self._wait(operation)
        applied, reported = self._next_outcome(operation).value
        if not applied and reported:
            raise TryAgain(f"{operation} of {name} was refused by an injected fault")
        if applied:
            write()
        elif self._lost is not for_good:
            self._lost(write if path is None else self._as_sent(name, path.read_bytes()))
        if not reported:
            raise MaybeApplied(f"the reply to {operation} of {name} was lost by an injected fault")

    def _as_sent(self, name: str, data: bytes) -> Callable[[], None]:
        """The write of a file that may be deleted before the request arrives."""
        return lambda: self._blobs.put_if_absent(name, data)

    def _read(self, name: str) -> None:
        self._wait("read")
        if self._next_outcome("read") is not Outcome.DONE:
            raise TryAgain(f"{name} could not be read: an injected fault")
