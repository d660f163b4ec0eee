"""The journal of an application: its newest records, numbered, for views that read at their own pace.

Invariants: numbers only grow; at most `kept` records are held, the oldest leave first. Records that later
readers cannot do without (application, query, operator, ended) are held apart and always given first.
Threads: one writer, any number of readers.
"""

from __future__ import annotations

import threading
from collections import deque

from headrace.monitor.records import Record

KEPT = 4000
_FACTS = ("application", "query", "operator", "ended")
_FACTS_KEPT = 400


class Journal:
    """Numbered records in memory."""

    def __init__(self, kept: int = KEPT) -> None:
        self._records: deque[tuple[int, Record]] = deque(maxlen=kept)
        self._facts: deque[tuple[int, Record]] = deque(maxlen=_FACTS_KEPT)
        self._hosts: tuple[int, Record] | None = None
        self._number = 0
        self._lock = threading.Lock()

    @property
    def last(self) -> int:
        """The number of the newest record; 0 when there is none."""
        return self._number

    def add(self, record: Record) -> None:
        with self._lock:
            self._number += 1
            numbered = (self._number, record)
            if record["kind"] == "hosts":
                self._hosts = numbered  # only the newest counts
            elif record["kind"] in _FACTS:
                self._facts.append(numbered)
            else:
                self._records.append(numbered)

    def since(self, number: int) -> tuple[int, list[Record]]:
        """The records after `number`, facts first; and the number to go on from."""
        with self._lock:
            records = [*self._facts, *self._records, *([self._hosts] if self._hosts else [])]
            return self._number, [record for at, record in records if at > number]
