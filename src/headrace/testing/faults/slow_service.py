"""The service of a real host with a pause at every step of a transaction and of the commit behind it.

The batches of the crash rounds are tiny, and so are the moments at which a kill can do harm: rows applied
but not committed, committed but not reported. Pauses make these moments long enough to hit.
Threads: as the wrapped service.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.blob.locations import Locations
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.steps import Moment
from headrace.clock import SYSTEM_CLOCK
from headrace.host.state.service import PartitionService
from headrace.wire.contract import (
    ProcessorRequest,
    ProcessorTimes,
    StateService,
    Summary,
    Ticket,
    Transaction,
)

PAUSE_MS = 30.0
_BEHIND = (Moment.LOGGED, Moment.SEALED, Moment.UPLOADED, Moment.PUBLISHED)


class SlowTransaction:
    """A transaction with pauses."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def times(self) -> ProcessorTimes:
        return self._transaction.times()

    def answer(
        self, request: ProcessorRequest, rows: pa.RecordBatch, until_ms: int
    ) -> Iterator[pa.RecordBatch]:
        yield from self._transaction.answer(request, rows, until_ms)
        SYSTEM_CLOCK.sleep_ms(PAUSE_MS)

    def apply(self, rows: pa.RecordBatch) -> None:
        self._transaction.apply(rows)
        SYSTEM_CLOCK.sleep_ms(PAUSE_MS)

    def finish(self, seen_ms: Sequence[int | None]) -> Iterator[pa.RecordBatch]:
        yield from self._transaction.finish(seen_ms)
        SYSTEM_CLOCK.sleep_ms(PAUSE_MS)

    def commit(self) -> Summary:
        summary = self._transaction.commit()
        SYSTEM_CLOCK.sleep_ms(PAUSE_MS)
        return summary

    def abort(self) -> None:
        self._transaction.abort()


class SlowService:
    """A service with slow transactions."""

    def __init__(self, service: StateService) -> None:
        self._service = service

    def begin(self, ticket: Ticket) -> Transaction:
        return SlowTransaction(self._service.begin(ticket))

    def expect(self, query: str, operator: str, partition: int, hints: pa.RecordBatch) -> bool:
        return self._service.expect(query, operator, partition, hints)

    def status(self) -> dict[str, Any]:
        return self._service.status()

    def ended(self, queries: Collection[str]) -> None:
        self._service.ended(queries)

    def close(self) -> None:
        self._service.close()


def open_slow(memory_bytes: int, local: Path) -> StateService:
    """Opens the service of a crash round's hosts in place of `open_service`."""
    return SlowService(PartitionService(memory_bytes, Locations(local), Crew(probe=_pause)))


def _pause(moment: Moment) -> None:
    if moment in _BEHIND:
        SYSTEM_CLOCK.sleep_ms(PAUSE_MS)
