"""What the host's server asks of the state behind it: begin a batch, apply rows, finish, commit.

One transaction is one attempt of one Spark task at one batch of one partition. Its life:

    begin ─▶ apply* ─▶ finish ─▶ commit          abort at any point before commit returns

Threads: calls of one transaction come one after another, each possibly from another thread; different
transactions run at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

import pyarrow as pa

from headrace.options import CommitMode
from headrace.spec import OperatorSpec


@dataclass(frozen=True)
class Ticket:
    """What a task shows to begin: which partition of which operator, at which batch, on which base."""

    start: str  # Spark's run id: which start of the query this is
    query: str
    operator: OperatorSpec
    partition: int
    batch: int
    base: int | None  # the version that this batch starts from; None: the operator has none yet
    attempt: int  # Spark's task attempt id: a larger one fences a smaller one
    location: str  # absolute directory that holds the state of all queries
    retain: int  # how many versions to keep
    commit: CommitMode = "sync"  # what the commit waits for
    base_attempt: int | None = None  # the newest of this run that began the base, where that is known

    def to_json(self) -> str:
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({**said, "operator": self.operator.to_json()})

    @classmethod
    def from_json(cls, text: str) -> Ticket:
        said: dict[str, Any] = json.loads(text)
        return cls(**{**said, "operator": OperatorSpec.from_json(said["operator"])})


@dataclass(frozen=True)
class Hidden:
    """What was done for a version after its task had returned."""

    version: int
    seal_ms: float
    upload_ms: float
    publish_ms: float


@dataclass(frozen=True)
class Summary:
    """What one committed transaction did; sums over partitions make a batch's progress."""

    partition: int
    version: int
    rows_in: int
    rows_out: int
    late_rows: int
    keys: int  # rows of state after the batch, as far as known without reading the disk
    memory_bytes: int
    state_bytes: int  # bytes of the segments that the version names
    written_bytes: int
    apply_ms: float
    finish_ms: float
    seal_ms: float
    publish_ms: float
    watermark_ms: int | None
    commit: CommitMode = "sync"
    log_ms: float = 0.0
    wait_previous_ms: float = 0.0  # for ack 2 of the version before
    upload_ms: float = 0.0
    critical_ms: float = 0.0  # from the last result to the acknowledgement: what the batch waited for
    hidden: Hidden | None = None  # of the version before, which was not over when that one was told
    prefetch_hits: int = 0  # sessions that ended, whose rows had been read with those of another one
    prefetch_misses: int = 0  # reads because a session ended, and sessions that were read for nothing
    store: str = ""  # whose files the version's segments are

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, said: dict[str, Any]) -> Summary:
        hidden = said.get("hidden")
        return cls(**{**said, "hidden": Hidden(**hidden) if hidden else None})


class Transaction(Protocol):
    """One attempt at one batch of one partition."""

    def apply(self, rows: pa.RecordBatch) -> None:
        """Fold rows of `input_schema` into the state."""

    def finish(self, seen_ms: Sequence[int | None]) -> Iterator[pa.RecordBatch]:
        """Results of `output_schema`; `seen_ms` is this batch's largest event time per watermark node."""

    def commit(self) -> Summary:
        """Make the batch durable; raises `Fenced` when a newer attempt took the partition."""

    def abort(self) -> None:
        """Forget everything since begin; harmless after commit."""


class StateService(Protocol):
    """All partitions that a host holds."""

    def begin(self, ticket: Ticket) -> Transaction:
        """Open a transaction, fencing any older one of the same partition."""

    def status(self) -> dict[str, Any]:
        """What the host holds: partitions, versions, bytes."""

    def ended(self, queries: Collection[str]) -> None:
        """These queries do not run any more: what they hold in memory goes to the others."""

    def close(self) -> None:
        """Stop background work and release files."""
