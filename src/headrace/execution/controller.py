"""The controller: which record runs when.

    new record ─▶ key free? ─▶ start ─▶ complete
                  │ no            │ waits for state        ▲
                  ▼               ▼                        │
            blocking buffer   active buffer ─▶ issue ─▶ callback

Order: callbacks first, then records that have waited for their key, then new records. A record that is
complete at its start is never accounted for. A source may start records itself (bypass): it returns those
that wait, and None after a number of others, so that the controller goes on with callbacks.
Invariants: at most one record of a key is started and incomplete. Records of a key start in the order of
their arrival. At most `in_flight` records are incomplete, plus those that a trigger or callback adds
(overdraft). Requests of a started record never wait for room, so no record waits for itself.
Threads: one task's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from headrace.execution.accounting import KeyAccounting
from headrace.execution.buffers import ActiveBuffer, BlockingBuffer
from headrace.execution.epochs import Action, Epoch, EpochManager, EpochState
from headrace.execution.record import Record

Callback = Callable[[], None]


class NoRoom(Exception):
    """A record was submitted beyond the limit: a defect of the caller."""


@dataclass(frozen=True)
class Limits:
    """Incomplete records at a time, requests of a batch, epochs that overlap."""

    in_flight: int = 6_000
    active: int = 1_000
    epochs: int = 4


class Controller:
    """Starts records and accounts for those that wait.

    `start` runs a record until it is complete (True) or waits (False); then `finish` follows later. `issue`
    sends a batch of requests; their answers arrive through `answer`.
    """

    def __init__(
        self,
        start: Callable[[Record], bool],
        issue: Callable[[list[Any]], None],
        limits: Limits | None = None,
        *,
        overlapping: bool = False,
    ) -> None:
        self._start, self._issue, self.limits = start, issue, limits or Limits()
        self.accounting = KeyAccounting()
        self.epochs = EpochManager(overlapping=overlapping)
        self._blocking = BlockingBuffer[Record]()
        self._active = ActiveBuffer[Any](self.limits.active)
        self._callbacks: deque[Callback] = deque()
        self._ready: deque[Record] = deque()  # they occupy their key and are not started
        self._next: Record | None = None  # read from the source, and not submitted for lack of room
        self.in_flight = 0

    @property
    def has_room(self) -> bool:
        """Whether a new record may be submitted."""
        if self.in_flight >= self.limits.in_flight or self.epochs.is_blocked:
            return False
        return len(self.epochs) <= self.limits.epochs

    @property
    def is_drained(self) -> bool:
        """Whether nothing is in flight: all records are complete, and all closed epochs finished."""
        return not (self.in_flight or self._callbacks) and len(self.epochs) == 1

    @property
    def blocked(self) -> int:
        """How many records wait for their key."""
        return len(self._blocking)

    # ── records ──────────────────────────────────────────────────────────────────────────────

    def submit(self, record: Record, epoch: Epoch | None = None) -> None:
        """Starts a record, or lets it wait for its key. A record with an epoch comes from its trigger."""
        if epoch is None and not self.has_room:
            raise NoRoom(f"{self.in_flight} records are in flight")
        if not self.accounting.is_free(record.key) or not self._start(record):
            self._account(record, epoch)

    def finish(self, record: Record) -> None:
        """A started record is complete: its key goes to the next record that waits for it."""
        key = record.key
        self.accounting.release(key, record)
        waiting = self._blocking.pop(key)
        if waiting is not None:
            self.accounting.occupy(key, waiting)
            self._ready.append(waiting)
        self._leave(record)

    def close_epoch(self, trigger: Action | None = None, done: Action | None = None) -> None:
        """A watermark arrives: `trigger` runs after all records before it, `done` after the trigger's."""
        self.epochs.close(trigger, done)

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    def request(self, request: Any) -> None:
        """Adds a request of a started record to the batch; a full batch is issued."""
        if self._active.push(request):
            self._issue(self._active.take())

    def answer(self, callback: Callback) -> None:
        """Queues the continuation of a record; `advance` runs it before new records."""
        self._callbacks.append(callback)

    # ── order ────────────────────────────────────────────────────────────────────────────────

    def advance(self, source: Iterator[Record | None], most: int) -> bool:
        """Runs callbacks, waiting records and up to `most` new ones; returns False after the last one."""
        left = most
        more = True
        while True:
            if self._callbacks:
                self._callbacks.popleft()()
            elif self._ready:
                self._resume(self._ready.popleft())
            elif more and left and self.has_room:
                left, more = self._admit(source, left)
            else:
                break
        if len(self._active):
            self._issue(self._active.take())
        return more

    def _admit(self, source: Iterator[Record | None], left: int) -> tuple[int, bool]:
        """Submits records until one is in flight; returns how many may follow, and whether any do."""
        if self._next is not None:
            source, self._next = chain((self._next,), source), None
        start, is_free, epoch = self._start, self.accounting.is_free, self.epochs.open
        for record in source:
            left -= 1
            if record is None:
                return 0, True
            if record.is_begun:
                self._account(record, None)
                break
            if epoch.state is not EpochState.OPEN:  # the source closed it on the way to this record
                self._next = record
                break
            if not is_free(record.key) or not start(record):
                self._account(record, None)
                break
            if not left:
                break
        else:
            return left, False
        return left, True

    def _resume(self, record: Record) -> None:
        """Starts a record that has waited for its key."""
        if self._start(record):
            self.finish(record)

    def _account(self, record: Record, epoch: Epoch | None) -> None:
        """A record is in flight from now on: it was started and waits, or it waits for its key."""
        record.epoch = self.epochs.enter(epoch)
        self.in_flight += 1
        if not self.accounting.occupy(record.key, record):
            self._blocking.push(record.key, record)

    def _leave(self, record: Record) -> None:
        assert record.epoch is not None
        self.in_flight -= 1
        epoch, record.epoch = record.epoch, None
        self.epochs.leave(epoch)
