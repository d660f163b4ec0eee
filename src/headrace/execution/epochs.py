"""Epochs: the records between two watermarks.

    OPEN    ─▶ records join
    CLOSED  ─▶ a watermark has arrived; records of the epoch are still in flight, or its trigger is due
    FINISHED ─▶ complete; it leaves the queue once all epochs before it have left

The trigger of an epoch runs once its records are complete and it is the oldest. It fires timers, and their
calls join the epoch. The `done` action follows: it passes the watermark on.
Invariants: actions run in the order of their watermarks, each once, after all records before the watermark.
Threads: one task's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

Action = Callable[["Epoch"], None]


class EpochState(Enum):
    """How far an epoch is."""

    OPEN = "open"
    CLOSED = "closed"
    FINISHED = "finished"


class EpochClosed(Exception):
    """A record joined an epoch that takes no more: a defect of the caller."""


class Epoch:
    """The records between two watermarks, and what follows them."""

    __slots__ = ("done", "pending", "state", "trigger")

    def __init__(self) -> None:
        self.state = EpochState.OPEN
        self.pending = 0  # records that are not complete
        self.trigger: Action | None = None
        self.done: Action | None = None


class EpochManager:
    """The queue of epochs, the oldest first; its last epoch is open.

    If epochs are serial, records of the open epoch wait until the epochs before are finished.
    """

    def __init__(self, *, overlapping: bool = False) -> None:
        self._overlapping = overlapping
        self._queue: deque[Epoch] = deque([Epoch()])
        self._is_settling = False

    def __len__(self) -> int:
        """How many epochs are not finished, the open one included."""
        return len(self._queue)

    @property
    def open(self) -> Epoch:
        return self._queue[-1]

    @property
    def is_blocked(self) -> bool:
        """Whether new records must wait for an older epoch."""
        return not self._overlapping and len(self._queue) > 1

    def enter(self, epoch: Epoch | None = None) -> Epoch:
        """A record joins the open epoch, or the one whose trigger makes it."""
        joined = self.open if epoch is None else epoch
        if joined.state is EpochState.FINISHED:
            raise EpochClosed("a record joined an epoch that is finished")
        joined.pending += 1
        return joined

    def leave(self, epoch: Epoch) -> None:
        """A record of the epoch is complete."""
        epoch.pending -= 1
        if epoch.state is EpochState.CLOSED:
            self._settle()

    def close(self, trigger: Action | None = None, done: Action | None = None) -> Epoch:
        """A watermark: closes the open epoch and opens the next."""
        epoch = self.open
        epoch.trigger, epoch.done, epoch.state = trigger, done, EpochState.CLOSED
        self._queue.append(Epoch())
        self._settle()
        return epoch

    def _settle(self) -> None:
        """Finishes what is complete; the trigger of the oldest epoch may add records to it."""
        if self._is_settling:
            return  # an action completed a record; the outer call goes on
        self._is_settling = True
        try:
            self._finish_complete()
            while self._queue[0].state is not EpochState.OPEN and self._queue[0].pending == 0:
                head = self._queue[0]
                if head.trigger is not None:
                    trigger, head.trigger = head.trigger, None
                    trigger(head)
                else:
                    head.state = EpochState.FINISHED
                    self._queue.popleft()
                    if head.done is not None:
                        head.done(head)
                self._finish_complete()
        finally:
            self._is_settling = False

    def _finish_complete(self) -> None:
        for epoch in self._queue:
            if epoch.state is EpochState.CLOSED and epoch.pending == 0 and epoch.trigger is None:
                epoch.state = EpochState.FINISHED
