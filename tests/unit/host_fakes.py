"""A state service that keeps per-key counts in memory, for tests of everything around it."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import Fenced
from headrace.plan.spec import (
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    output_schema,
)
from headrace.wire.contract import Summary, Ticket

POISON = -13  # a key whose rows make `apply` fail
UNKNOWN = -14  # a key whose rows make `apply` fail in a way that is not ours


def counting(name: str = "counts", partitions: int = 2) -> OperatorSpec:
    """Running count per integer key."""
    return OperatorSpec(
        name=name,
        keys=(Field("k0", "int64", "k"),),
        inputs=(),
        work=Fold((Accumulator("count", None, "int64"),)),
        window=None,
        emit="changes",
        timed=False,
        delays_ms=(),
        partitions=partitions,
    )


class FakeTransaction:
    def __init__(self, service: FakeService, ticket: Ticket) -> None:
        self.service, self.ticket = service, ticket
        self.seen: list[int | None] = []
        self.rows = 0
        self.touched: Counter[int] = Counter()

    def apply(self, rows: pa.RecordBatch) -> None:
        counts = rows.column("k0").value_counts()
        keys = counts.field("values").to_pylist()
        if POISON in keys:
            raise Fenced("a newer attempt took the partition", hint="nothing to do")
        if UNKNOWN in keys:
            raise ZeroDivisionError("a bug")
        self.rows += rows.num_rows
        self.touched.update(dict(zip(keys, counts.field("counts").to_pylist(), strict=True)))

    def finish(self, seen_ms: Sequence[int | None]) -> Iterator[pa.RecordBatch]:
        self.seen = list(seen_ms)
        base = self.service.version(self.ticket, self.ticket.base)
        keys = sorted(self.touched)
        counts = [base[key] + self.touched[key] for key in keys]
        results = pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.int64()), pa.array(counts, pa.int64())],
            schema=output_schema(self.ticket.operator),
        )
        yield results
        while self.service.is_endless:
            yield results

    def commit(self) -> Summary:
        state = self.service.version(self.ticket, self.ticket.base) + self.touched
        self.service.keep(self.ticket, state)
        return Summary(
            partition=self.ticket.partition,
            version=self.ticket.batch,
            rows_in=self.rows,
            rows_out=len(self.touched),
            late_rows=0,
            keys=len(state),
            memory_bytes=0,
            state_bytes=0,
            written_bytes=0,
            apply_ms=0.0,
            finish_ms=0.0,
            seal_ms=0.0,
            publish_ms=0.0,
            watermark_ms=next((seen for seen in self.seen), None),
        )

    def abort(self) -> None:
        self.service.note("aborted")


class FakeService:
    """Versions of counts by (query, operator, partition)."""

    def __init__(self) -> None:
        self.versions: dict[tuple[Any, ...], Counter[int]] = {}
        self.notes: Counter[str] = Counter()
        self.is_endless = False  # results come for as long as a client reads them
        self.mutex = threading.Lock()

    def begin(self, ticket: Ticket) -> FakeTransaction:
        self.note("begun")
        return FakeTransaction(self, ticket)

    def version(self, ticket: Ticket, version: int | None) -> Counter[int]:
        if version is None:
            return Counter()
        return self.versions[(ticket.query, ticket.operator.name, ticket.partition, version)]

    def keep(self, ticket: Ticket, state: Counter[int]) -> None:
        with self.mutex:
            key = (ticket.query, ticket.operator.name, ticket.partition, ticket.batch)
            self.versions[key] = state
        self.note("committed")

    def note(self, what: str) -> None:
        with self.mutex:
            self.notes[what] += 1

    def status(self) -> dict[str, Any]:
        return {"notes": dict(self.notes), "versions": len(self.versions)}

    def expect(self, query: str, operator: str, partition: int, hints: pa.RecordBatch) -> bool:
        self.note("hints")
        return True

    def ended(self, queries: Collection[str]) -> None:
        self.note("ended")

    def close(self) -> None:
        self.note("closed")


def open_fake(memory_bytes: int, local: Path) -> FakeService:
    return FakeService()


def open_slow(memory_bytes: int, local: Path) -> FakeService:
    """A host that never gets ready."""
    threading.Event().wait(600)
    return FakeService()


def open_masked(memory_bytes: int, local: Path) -> FakeService:
    """The main thread, which opens the service, takes no SIGTERM any more; older threads do."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    return FakeService()
