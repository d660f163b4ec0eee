"""The picture of an application that its records add up to: what views, the terminal and metrics show.

Invariants: what is kept is bounded: `BATCHES` per operator, `EVENTS`, `QUERIES`.
Threads: one owner, who calls `take` and reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.coordinator.progress import BatchProgress
from headrace.monitor.records import Record

BATCHES, EVENTS, QUERIES = 600, 200, 40


@dataclass(frozen=True)
class Host:
    """A state host as its last heartbeat described it."""

    machine: str
    pid: int
    memory_limit_bytes: int
    memory_bytes: int
    storage_waits_ms: dict[str, float] = field(default_factory=dict)
    partitions: int = 0
    opened: dict[str, int] = field(default_factory=dict)  # partitions in memory, by query


@dataclass(frozen=True)
class Event:
    """Something worth a line: an error, a warning, a note."""

    at_ms: int
    where: str
    level: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Trigger:
    """What Spark measured around one batch."""

    batch: int
    at_ms: int
    started_ms: int
    rows: int
    duration_ms: dict[str, int]

    @property
    def total_ms(self) -> int:
        return self.duration_ms.get("triggerExecution", 0)


@dataclass
class Operator:
    """One operator of a query."""

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    batches: dict[int, BatchProgress] = field(default_factory=dict)

    @property
    def last(self) -> BatchProgress | None:
        return next(reversed(self.batches.values()), None)

    @property
    def store(self) -> str:
        """Where state is: as the newest batch reports it."""
        return (self.last.store if self.last else "") or str(self.facts.get("store", ""))

    def recent(self, number: int) -> list[BatchProgress]:
        return list(self.batches.values())[-number:]


@dataclass
class Query:
    """One query, running or not."""

    id: str
    run: str = ""
    name: str = ""
    checkpoint: str = ""
    since_ms: int = 0
    ended_ms: int | None = None
    error: str = ""
    operators: dict[str, Operator] = field(default_factory=dict)
    triggers: dict[int, Trigger] = field(default_factory=dict)

    @property
    def title(self) -> str:
        if self.name:
            return self.name
        return ", ".join(self.operators) or self.id[:8]

    @property
    def state(self) -> str:
        if self.ended_ms is None:
            return "running"
        return "failed" if self.error else "stopped"


class Picture:
    """What the records taken so far add up to."""

    def __init__(self) -> None:
        self.application = ""
        self.application_id = ""
        self.at_ms = 0
        self.queries: dict[str, Query] = {}
        self.hosts: list[Host] = []
        self.events: list[Event] = []

    def take(self, records: Iterable[Record]) -> None:
        """Add records; kinds unknown to this release are left out."""
        for record in records:
            take = getattr(self, f"_take_{record['kind']}", None)
            self.at_ms = max(self.at_ms, int(record["at_ms"]))
            if take is not None:
                take(record)

    def query(self, identity: str | None = None) -> Query | None:
        """The query of an id, or the one that a viewer means: the newest that runs, else the newest."""
        if identity:
            return self.queries.get(identity)
        known = list(self.queries.values())
        running = [query for query in known if query.ended_ms is None]
        return next(iter(running or known[-1:]), None)

    def label(self, identity: str) -> str:
        """A query's title; with a part of its id where another query has the same title."""
        query = self.queries.get(identity)
        if query is None:
            return identity
        alike = [one for one in self.queries.values() if one.title == query.title]
        return query.title if len(alike) == 1 else f"{query.title} {identity[:8]}"

    def _take_application(self, record: Record) -> None:
        self.application, self.application_id = record["name"], record["id"]

    def _take_query(self, record: Record) -> None:
        query = self._query(record)
        query.run, query.name = record["run"], record["name"] or query.name
        query.checkpoint, query.since_ms = record["checkpoint"], record["at_ms"]
        query.ended_ms, query.error = None, ""

    def _take_operator(self, record: Record) -> None:
        self._operator(record).facts = record

    def _take_batch(self, record: Record) -> None:
        progress = BatchProgress.of(record["progress"])
        _keep(self._operator(record).batches, progress.batch, progress)

    def _take_trigger(self, record: Record) -> None:
        names = ("batch", "at_ms", "started_ms", "rows", "duration_ms")
        values = Trigger(**{name: record[name] for name in names})
        _keep(self._query(record).triggers, values.batch, values)

    def _take_hosts(self, record: Record) -> None:
        self.hosts = [Host(**host) for host in record["hosts"]]

    def _take_event(self, record: Record) -> None:
        names = ("at_ms", "where", "level", "message", "hint")
        self.events = [*self.events, Event(**{name: record[name] for name in names})][-EVENTS:]

    def _take_ended(self, record: Record) -> None:
        query = self._query(record)
        query.ended_ms, query.error = record["at_ms"], record["error"]

    def _query(self, record: Record) -> Query:
        identity = record["query"]
        if identity not in self.queries:
            self.queries[identity] = Query(identity, since_ms=record["at_ms"])
            for old in list(self.queries)[:-QUERIES]:
                del self.queries[old]
        return self.queries[identity]

    def _operator(self, record: Record) -> Operator:
        operators = self._query(record).operators
        return operators.setdefault(record["operator"], Operator(record["operator"]))


def _keep(values: dict[int, Any], number: int, value: Any) -> None:
    """Keep the newest values; a repeated number stays in its place."""
    values[number] = value
    for old in list(values)[:-BATCHES]:
        del values[old]
