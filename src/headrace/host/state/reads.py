"""The reads of state of one transaction: what its store counted, and how long each row waited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from headrace.files.stretch import Stretch
from headrace.files.table import FileTable
from headrace.store.base.contract import Store
from headrace.store.base.waits import WaitHistogram
from headrace.wire.contract import Span
from headrace.wire.state_reads import StateReads


class ReadAccount:
    """Counts from its making on. Hints that came since the batch before count with this one."""

    def __init__(self, store: Store, files: FileTable, lookahead: str) -> None:
        self._store, self._files, self._lookahead = store, files, lookahead
        self._before = store.waited().counts()
        self._waits = WaitHistogram()
        self.spans: tuple[Span, ...] = ()  # of reads ahead and of requests, once `reads` was called

    @contextmanager
    def rows(self, rows: int) -> Iterator[None]:
        """Counts how long these rows wait for state; they are applied together."""
        before_ms = self._store.waited().wait_ms
        yield
        if self._store.waited().rows is None:
            self._waits.add(rows, self._store.waited().wait_ms - before_ms)

    def reads(self) -> StateReads:
        """The reads so far."""
        now, ahead = self._store.waited().counts(), self._store.ahead_counts().drained()
        spent = {name: value - self._before[name] for name, value in now.items()}
        numbers, fetched = ahead.numbers(), self._files.take_fetched()
        self.spans = (*_span("prefetch", ahead.stretch), *_span("fetch", fetched.stretch))
        return StateReads(
            wait_ms=round(spent["wait_ms"], 3),
            looked_up=int(spent["keys"]),
            hits=int(spent["hits"]),
            blocks=int(spent["blocks"]),
            bytes=int(spent["bytes"]),
            waits=self._pairs(),
            spill_ms=round(spent["spill_ms"], 3),
            lookahead=self._lookahead,
            hints=int(numbers["hints"]),
            filtered=int(numbers["filtered"]),
            late=int(numbers["late"]),
            dropped=int(numbers["dropped"]),
            failed=int(numbers["failed"]),
            fetched=int(numbers["fetched"]),
            in_vain=int(numbers["in_vain"]),
            hidden_ms=round(max(0.0, numbers["hidden_ms"]), 3),
            slacks=ahead.slacks.pairs(),
            fetches=ahead.reads.pairs(),
            **asdict(fetched),
        )

    def _pairs(self) -> tuple[tuple[int, int], ...]:
        """Rows by their wait: those that the store counted itself, or those that were applied together."""
        own = self._store.waited().rows
        if own is None:
            return self._waits.pairs()
        pairs = own.pairs()
        own.rows.clear()
        return pairs


def _span(phase: str, stretch: Stretch) -> tuple[Span, ...]:
    if stretch.start_ms is None:
        return ()
    return (Span(phase, round(stretch.start_ms), round(stretch.end_ms)),)
