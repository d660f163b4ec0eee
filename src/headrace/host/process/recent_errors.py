"""The last errors of a host's transactions, for whoever watches the application.

Invariants: at most `KEPT` are held; numbers grow by one with every error.
Threads: any.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from headrace.clock import Clock, SystemClock
from headrace.errors import Fenced, HeadraceError
from headrace.wire.contract import Ticket

KEPT = 16
TEXT_MAX = 400


class RecentErrors:
    """Aborted transactions and why."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._errors: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._number = 0
        self._lock = threading.Lock()

    def add(self, ticket: Ticket, error: BaseException) -> None:
        """Keep an error; one that only reports a newer attempt is left out."""
        if isinstance(error, Fenced):
            return
        with self._lock:
            self._number += 1
            self._errors.append(
                {
                    "number": self._number,
                    "at_ms": self._clock.now_ms(),
                    "where": ticket.operator.name,
                    "message": f"batch {ticket.batch}, partition {ticket.partition}: {_text(error)}",
                    "hint": error.hint[:TEXT_MAX] if isinstance(error, HeadraceError) else "",
                }
            )

    def listed(self) -> list[dict[str, Any]]:
        """The errors that are held, oldest first."""
        with self._lock:
            return list(self._errors)


def _text(error: BaseException) -> str:
    text = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    return text[:TEXT_MAX]
