"""One operator of one query as the coordinator sees it: its record, its current batch, who claimed what.

Invariants: the record on disk names a batch before any task of it is answered; within a run batches only go
forward; a run that is not the query's active one is fenced.
Threads: calls come from many; one lock per operator, held while the record is written, so that the other
tasks of the batch wait for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.coordinator.claims import StageClaims
from headrace.coordinator.epochs import base_of
from headrace.coordinator.progress import BatchProgress, told_later, total
from headrace.coordinator.records import OperatorRecord, SmallFiles, opened, record_name
from headrace.errors import Fenced, QueryError
from headrace.host.contract import Summary
from headrace.spec import OperatorSpec

_PROGRESS_KEPT = 100


class QueryView(Protocol):
    """What the coordinator asks of Spark."""

    def active_run(self, query: str) -> str | None:
        """The run id of a running query."""

    def active_queries(self) -> set[str] | None:
        """Ids of all running queries; None when Spark does not answer."""

    def checkpoint_files(self, query: str) -> SmallFiles:
        """The query's checkpoint directory."""

    def started_fresh(self, query: str) -> bool:
        """Whether the running query began with batch 0."""

    def seen_ms(self, query: str, batch: int, nodes: list[str]) -> list[int | None]:
        """The batch's largest event time per watermark node; None where it saw none."""

    def alive(self) -> bool:
        """Whether the Spark application still runs."""


@dataclass(frozen=True)
class BeginRequest:
    """What a task says when it begins. `partition` is None when it has no rows."""

    query: str
    run: str
    uid: str
    batch: int
    stage: int
    task: int
    attempt: int
    partition: int | None
    machine: str
    spec: OperatorSpec
    location: str | None
    new: bool
    avoid: str | None = None
    nodes: Sequence[str] = ()  # ids of the watermark nodes below

    @classmethod
    def of(cls, said: dict[str, Any]) -> BeginRequest:
        return cls(**{**said, "spec": OperatorSpec.from_json(said["spec"])})


@dataclass(frozen=True)
class Begun:
    base: int | None
    location: str
    partitions: list[int]
    base_attempts: dict[int, int]  # the newest that began the base in this run, by partition
    seen_ms: list[int | None]  # the largest event time of the batch, by watermark node


class TrackedOperator:
    """The coordinator's account of one operator."""

    def __init__(self, view: QueryView) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._run: str | None = None
        self._uid = ""
        self._batch = -1
        self._record: OperatorRecord | None = None
        self._files: SmallFiles | None = None
        self._claims: dict[int, StageClaims] = {}
        self._attempts: dict[int, dict[int, int]] = {}  # newest one by batch and partition
        self._summaries: OrderedDict[int, dict[int, Summary]] = OrderedDict()
        self._seen: tuple[int, list[int | None]] | None = None

    def begin(self, request: BeginRequest) -> Begun:
        with self._lock:
            if request.run != self._run:
                self._start_run(request)
            if request.uid != self._uid:
                raise QueryError(
                    f"two operators of one query are named {request.spec.name}",
                    hint="give each its own name with .name(...)",
                )
            if request.batch != self._batch:
                self._start_batch(request)
            assert self._record is not None
            base, partitions = base_of(self._record.begun, request.batch), self._claim(request)
            mine = self._attempts.setdefault(request.batch, {})
            mine.update({number: max(request.attempt, mine.get(number, -1)) for number in partitions})
            attempts, seen_ms = self._attempts_of(base), self._seen_by(request)
            return Begun(base, self._record.location, partitions, attempts, seen_ms)

    def _attempts_of(self, base: int | None) -> dict[int, int]:
        return {} if base is None else self._attempts.get(base, {})

    def _claim(self, request: BeginRequest) -> list[int]:
        if request.avoid is not None:  # asked before, and now only for another owner
            return [] if request.partition is None else [request.partition]
        claims = self._claims.setdefault(request.stage, StageClaims(request.spec.partitions))
        return claims.arrive(request.task, request.attempt, request.partition)

    def _start_run(self, request: BeginRequest) -> None:
        active = self._view.active_run(request.query)
        if active != request.run:
            raise Fenced(f"run {request.run} of query {request.query} is over")
        files = self._view.checkpoint_files(request.query)
        name = record_name(request.spec.name)
        path = f"{files.root}/{name}"
        text = files.read(name)
        found = None if text is None else OperatorRecord.from_json(text, path)
        fresh = request.new or (found is None and self._view.started_fresh(request.query))
        location = state_location(request.location, files.root)
        self._record = opened(found, request.spec, location, request.batch, new=fresh, path=path)
        self._run, self._uid, self._batch = request.run, request.uid, -1
        self._files = files
        self._summaries.clear()
        self._attempts = {}
        self._seen = None

    def _start_batch(self, request: BeginRequest) -> None:
        if request.batch < self._batch:
            raise Fenced(f"batch {request.batch} of operator {request.spec.name} is over")
        self._refuse_after_half_a_batch(request.spec)
        assert self._record is not None
        assert self._files is not None
        record = self._record.began(request.batch)
        if record != self._record:
            self._files.write(record_name(request.spec.name), record.to_json())
        self._record, self._batch = record, request.batch
        self._claims = {}
        base = base_of(record.begun, request.batch)
        self._attempts = {batch: who for batch, who in self._attempts.items() if batch == base}

    def _refuse_after_half_a_batch(self, spec: OperatorSpec) -> None:
        done = len(self._summaries.get(self._batch, {}))
        if self._batch >= 0 and done < spec.partitions:
            raise QueryError(
                f"batch {self._batch} evaluated {done} of {spec.partitions} partitions of {spec.name}",
                hint="a foreachBatch function must use the whole batch (write it, count it), not only show "
                "or limit it; correct it and start from a new checkpoint",
            )

    def _seen_by(self, request: BeginRequest) -> list[int | None]:
        """The batch's event times; Spark is asked once per batch.

        A task's rows came through a shuffle, so by now every row has passed the watermark nodes below.
        """
        if not request.nodes:
            return []
        if self._seen is None or self._seen[0] != request.batch:
            found = self._view.seen_ms(request.query, request.batch, list(request.nodes))
            self._seen = (request.batch, found)
        return self._seen[1]

    def committed(self, run: str, batch: int, summary: Summary) -> None:
        with self._lock:
            self._refuse_earlier(run)
            self._summaries.setdefault(batch, {})[summary.partition] = summary
            self._complete_earlier(summary)
            while len(self._summaries) > _PROGRESS_KEPT:
                self._summaries.popitem(last=False)

    def _complete_earlier(self, summary: Summary) -> None:
        """A commit that went on behind this batch is over now, and how long it took is known."""
        hidden = summary.hidden
        earlier = self._summaries.get(hidden.version, {}) if hidden else {}
        if hidden and summary.partition in earlier:
            earlier[summary.partition] = told_later(earlier[summary.partition], hidden)

    def _refuse_earlier(self, run: str) -> None:
        if run != self._run:
            raise Fenced(f"run {run} is over", hint="nothing to do: a newer start of the query goes on")

    def progress(self) -> list[BatchProgress]:
        """The last batches of the current run, oldest first."""
        with self._lock:
            batches = [(batch, list(parts.values())) for batch, parts in self._summaries.items()]
        return [total(batch, parts) for batch, parts in batches]


def state_location(configured: str | None, checkpoint_root: str) -> str:
    """Where state lies: as configured, or beside a checkpoint that is on a file system."""
    if configured:
        return configured.removeprefix("file://")
    if checkpoint_root.startswith("file:"):
        path = "/" + checkpoint_root.removeprefix("file:").lstrip("/")
        return f"{path}/headrace-state"
    raise QueryError(
        f"the checkpoint {checkpoint_root} is not on a file system, so there is no default state location",
        hint="set spark.headrace.state.location to a directory that all machines share, or to s3://…",
    )
