"""The reads of state of one transaction: what its store counted, and how long each row waited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from headrace.files.table import FileTable
from headrace.store.base.contract import Store
from headrace.store.base.waits import WaitHistogram
from headrace.wire.state_reads import StateReads


class ReadAccount:
    """Counts from its making on."""

    def __init__(self, store: Store, files: FileTable) -> None:
        self._store, self._files = store, files
        self._before = store.waited().counts()
        self._waits = WaitHistogram()

    @contextmanager
    def rows(self, rows: int) -> Iterator[None]:
        """Counts how long these rows wait for state; they are applied together."""
        before_ms = self._store.waited().wait_ms
        yield
        self._waits.add(rows, self._store.waited().wait_ms - before_ms)

    def reads(self) -> StateReads:
        """The reads so far."""
        now = self._store.waited().counts()
        spent = {name: value - self._before[name] for name, value in now.items()}
        return StateReads(
            wait_ms=round(spent["wait_ms"], 3),
            looked_up=int(spent["keys"]),
            hits=int(spent["hits"]),
            blocks=int(spent["blocks"]),
            bytes=int(spent["bytes"]),
            waits=self._waits.pairs(),
            **asdict(self._files.take_fetched()),
        )
