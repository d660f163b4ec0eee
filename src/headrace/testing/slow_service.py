"""The state of a real host with a pause at every step of a transaction, and of the commit behind it.

The crash rounds' batches are tiny, and so are the moments in which a kill could do harm: rows applied but
not committed, committed but not reported. Pauses make them wide enough to be hit.
Threads: as the service behind it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.blob.locations import Locations
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.steps import Moment
from headrace.host.contract import StateService, Summary, Ticket, Transaction
from headrace.host.service import PartitionService

PAUSE_S = 0.03
_BEHIND = (Moment.LOGGED, Moment.SEALED, Moment.UPLOADED, Moment.PUBLISHED)


class SlowTransaction:
    """A transaction that takes its time."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def apply(self, rows: pa.RecordBatch) -> None:
        self._transaction.apply(rows)
        time.sleep(PAUSE_S)

    def finish(self, seen_ms: Sequence[int | None]) -> Iterator[pa.RecordBatch]:
        yield from self._transaction.finish(seen_ms)
        time.sleep(PAUSE_S)

    def commit(self) -> Summary:
        summary = self._transaction.commit()
        time.sleep(PAUSE_S)
        return summary

    def abort(self) -> None:
        self._transaction.abort()


class SlowService:
    """A service whose transactions take their time."""

    def __init__(self, service: StateService) -> None:
        self._service = service

    def begin(self, ticket: Ticket) -> SlowTransaction:
        return SlowTransaction(self._service.begin(ticket))

    def status(self) -> dict[str, Any]:
        return self._service.status()

    def ended(self, queries: Collection[str]) -> None:
        self._service.ended(queries)

    def close(self) -> None:
        self._service.close()


def open_slow(memory_bytes: int, local: Path) -> SlowService:
    """What a crash round's hosts open in place of `open_service`."""
    return SlowService(PartitionService(memory_bytes, Locations(local), Crew(probe=_pause)))


def _pause(moment: Moment) -> None:
    if moment in _BEHIND:
        time.sleep(PAUSE_S)
