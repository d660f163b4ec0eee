"""The contract between the host's server and the state behind it: begin, apply, finish, commit.

One transaction is one attempt of one Spark task at one batch of one partition. Its life:

    begin ─▶ apply* ─▶ finish ─▶ commit          abort at any point before commit returns

Threads: calls of one transaction come one after another, each possibly from another thread; different
transactions run at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from headrace.format.names import layout_prefix
from headrace.plan.options import CommitMode
from headrace.plan.partitions.layouts import Origin
from headrace.plan.spec import OperatorSpec
from headrace.wire.state_reads import NO_READS, StateReads


@dataclass(frozen=True)
class Ticket:
    """The start of a transaction: partition and operator, batch and base."""

    start: str  # Spark's run id of this start of the query
    query: str
    operator: OperatorSpec
    partition: int
    batch: int
    base: int | None  # the version that this batch starts from; None: the operator has none yet
    attempt: int  # Spark's task attempt id: a larger one fences a smaller one
    location: str  # absolute directory that holds the state of all queries
    retain: int  # how many versions to keep
    commit: CommitMode = "sync"  # what the commit waits for
    base_attempt: int | None = None  # the newest attempt of this run at the base, if known
    base_run: int | None = None  # the run that wrote the base, where Spark's commit log names it
    watermark_ms: int | None = None  # by which windows close; None: by the event times of the batch
    by_range: bool = False  # whether the partition's folder is named by its hash groups
    origin: Origin | None = None  # the layout that the base is in, where that is another one
    lookahead: str = ""  # where hints for the operator come from (`plan.lookahead`); empty: none
    links: tuple[dict[str, Any], ...] = ()  # operators above that get hints (`host.ahead.chain`)

    @property
    def prefix(self) -> str:
        """The partition's folder."""
        place = (self.query, self.operator.name, self.partition, self.operator.partitions)
        return layout_prefix(*place, by_range=self.by_range)

    @property
    def folders(self) -> list[str]:
        """The folders of all partitions of the operator."""
        place, count = (self.query, self.operator.name), self.operator.partitions
        return [layout_prefix(*place, number, count, by_range=self.by_range) for number in range(count)]

    def to_json(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        origin = None if self.origin is None else asdict(self.origin)
        return json.dumps({**values, "operator": self.operator.to_json(), "origin": origin})

    @classmethod
    def from_json(cls, text: str) -> Ticket:
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, values: dict[str, Any]) -> Ticket:
        operator, origin = OperatorSpec.from_json(values["operator"]), Origin.of(values.get("origin"))
        links = tuple(values.get("links", ()))
        return cls(**{**values, "operator": operator, "origin": origin, "links": links})


class Span(NamedTuple):
    """When a phase of a batch ran, by the host's clock: milliseconds since 1970."""

    phase: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class Hidden:
    """The time spent on a version after its task had returned."""

    version: int
    seal_ms: float
    upload_ms: float
    publish_ms: float
    spans: tuple[Span, ...] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Hidden:
        return cls(**{**values, "spans": spans_of(values.get("spans"))})


def spans_of(values: Any) -> tuple[Span, ...]:
    """Spans from what JSON made of them."""
    return tuple(Span(*one) for one in values or ())


@dataclass(frozen=True)
class Summary:
    """The figures of one committed transaction; a batch's progress adds up those of its partitions."""

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
    critical_ms: float = 0.0  # from the last result to the acknowledgement
    hidden: Hidden | None = None  # of the version before, whose own summary came too early for it
    prefetch_hits: int = 0  # sessions that ended with all rows read ahead
    prefetch_misses: int = 0  # sessions that ended and were read from disk then
    prefetched: int = 0  # sessions read ahead
    prefetch_in_vain: int = 0  # sessions read ahead and not used
    store: str = ""  # the layout of the version's segments
    run: int = 0  # number of the run that wrote the version
    open_ms: float = 0.0  # reading the base version, where memory did not have it
    read_ms: float = 0.0  # waiting for the batch's rows
    segments: int = 0  # files that the version names
    spans: tuple[Span, ...] = ()  # phases before the acknowledgement, compactions since the last one
    reads: StateReads = NO_READS  # of state that memory did not have
    verdict: str = ""  # what an observer of the store counted and chose

    @property
    def state_id(self) -> str:
        """The version's name in Spark's commit log; attempts of one run at one batch share it."""
        return f"v{self.version}-r{self.run}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, values: dict[str, Any]) -> Summary:
        hidden = values.get("hidden")
        spans = spans_of(values.get("spans"))
        reads = StateReads.of(values.get("reads"))
        hidden = Hidden.of(hidden) if hidden else None
        return cls(**{**values, "hidden": hidden, "spans": spans, "reads": reads})


ProcessorRequest = Literal["read", "write", "remind", "due"]


@dataclass(frozen=True)
class ProcessorTimes:
    """The watermarks of a processor's batch in ms; None before the first."""

    late_ms: int | None
    watermark_ms: int | None


class Transaction(Protocol):
    """One attempt at one batch of one partition."""

    def times(self) -> ProcessorTimes:
        """The watermarks of a processor's batch."""

    def answer(
        self, request: ProcessorRequest, rows: pa.RecordBatch, until_ms: int
    ) -> Iterator[pa.RecordBatch]:
        """Answers of `output_schema` to a request of a processor."""

    def apply(self, rows: pa.RecordBatch) -> None:
        """Applies rows of `input_schema`."""

    def finish(self, seen_ms: Sequence[int | None]) -> Iterator[pa.RecordBatch]:
        """Results of `output_schema`; `seen_ms` is this batch's largest event time per watermark node."""

    def commit(self) -> Summary:
        """Commits the batch; raises `Fenced` when a newer attempt owns the partition."""

    def abort(self) -> None:
        """Drops all changes since `begin`; does nothing after a commit."""


class StateService(Protocol):
    """All partitions of a host."""

    def begin(self, ticket: Ticket) -> Transaction:
        """Begins a transaction; fences an older one of the same partition."""

    def expect(self, query: str, operator: str, partition: int, hints: pa.RecordBatch) -> bool:
        """Rows with these hashes are on their way; False: the partition is not here."""

    def status(self) -> dict[str, Any]:
        """Partitions, versions and bytes of the host."""

    def ended(self, queries: Collection[str]) -> None:
        """Frees the memory of queries that have ended."""

    def close(self) -> None:
        """Stops background work and closes files."""
