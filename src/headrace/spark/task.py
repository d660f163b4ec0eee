"""The stateful task: what Spark's Python worker runs for one evaluation of one operator.

It takes the rows of a partition, learns from the coordinator which partition and version they belong to,
sends them to the partition's host, and yields the host's results. It keeps nothing between evaluations
but connections. Imports stay light: no Numba, no pandas.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from headrace.errors import HostUnavailable, QueryError
from headrace.host.client import Connections, HostClient
from headrace.host.contract import Ticket
from headrace.host.lifecycle import ensure_host
from headrace.host.settings import HostSettings
from headrace.host.wire import Unreachable, call
from headrace.options import COMMIT_MODES, CommitMode, HostPer, Options
from headrace.spark.machine import machine_name
from headrace.spec import HASH, OperatorSpec

CONNECTIONS = Connections()  # of this worker process; a reused worker finds them open

_GROUP_BITS = 10
_BEGIN_WITHIN_S = 180.0

RowBatches = Iterator[pa.RecordBatch]
Task = Callable[[RowBatches], RowBatches]
Then = Callable[[RowBatches], RowBatches]  # what becomes of one partition's results in the worker


@dataclass(frozen=True)
class TaskPlan:
    """Everything a task of one operator needs to know; travels with Spark's closure."""

    spec: OperatorSpec
    uid: str  # of the builder's operator: tells two operators of one name apart
    coordinator: str
    secret: str
    application: str
    local: str
    memory_bytes: int
    retain: int
    location: str | None = None  # None: beside the checkpoint
    new: bool = False
    nodes: tuple[str, ...] = ()  # ids of the watermark nodes below, in the order of `spec.delays_ms`
    host_per: HostPer = "machine"
    tcp: bool = False
    service: str = "headrace.host.service:open_service"
    warm: bool = True
    then: Then | None = None
    commit: CommitMode = "sync"

    def __repr__(self) -> str:
        return f"TaskPlan({self.spec.name})"


@dataclass(frozen=True)
class Place:
    """Where in a streaming query this task runs."""

    query: str
    run: str
    batch: int
    stage: int
    task: int
    attempt: int


class Reachable(Protocol):
    """What a task must know about its application's coordinator."""

    address: str
    secret: str
    application: str
    local_master: bool


def stateful_task(
    spec: OperatorSpec,
    uid: str,
    nodes: Sequence[str],
    coordinator: Reachable,
    options: Options,
    then: Then | None = None,
) -> Task:
    """The function to give to `mapInArrow` for one operator."""
    return task_of(
        TaskPlan(
            spec=spec,
            uid=uid,
            coordinator=coordinator.address,
            secret=coordinator.secret,
            application=coordinator.application,
            local=options.local,
            memory_bytes=options.memory_bytes,
            retain=options.retain,
            location=options.location,
            new=options.new,
            nodes=tuple(nodes),
            host_per=options.host_per,
            tcp=not coordinator.local_master,
            then=then,
            commit=options.commit,
        )
    )


def task_of(plan: TaskPlan) -> Task:
    """The task as a function; Spark shows its name in plans."""

    def evaluate(batches: RowBatches) -> RowBatches:
        from headrace.spark.task import Evaluation, as_started, here
        from headrace.spark.worker import sparing

        return sparing(Evaluation(as_started(plan), here(plan.spec.name)).run(batches))

    evaluate.__name__ = f"headrace_{plan.spec.name}"
    return evaluate


def as_started(plan: TaskPlan) -> TaskPlan:
    """The plan with the commit mode that the query was started with, which may not be that of its plan.

    A query has its own copy of the session's settings, and Spark gives them to tasks as local properties.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    said = None if context is None else context.getLocalProperty("spark.headrace.commit")
    started = next((mode for mode in COMMIT_MODES if mode == said), plan.commit)
    return replace(plan, commit=started)


def here(operator: str) -> Place:
    """This task's place, from Spark's task context."""
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or batch is None:
        raise QueryError(
            f"operator {operator} runs only in a streaming query",
            hint="start it with writeStream; a batch DataFrame has no state",
        )
    return Place(
        query=context.getLocalProperty("sql.streaming.queryId"),
        run=context.getLocalProperty("spark.jobGroup.id"),
        batch=int(batch),
        stage=context.stageId(),
        task=context.partitionId(),
        attempt=context.taskAttemptId(),
    )


def partition_of(signed_hash: int, partitions: int) -> int:
    """The partition of a hash: its top bits are its group, and a partition is a range of groups."""
    return ((signed_hash >> (64 - _GROUP_BITS)) & ((1 << _GROUP_BITS) - 1)) * partitions >> _GROUP_BITS


def first_rows(batches: RowBatches) -> tuple[int | None, RowBatches]:
    """The first row's hash, and all batches that have rows; None when there are none."""
    for batch in batches:
        if batch.num_rows:
            return batch.column(HASH)[0].as_py(), itertools.chain([batch], batches)
    return None, iter(())


class Evaluation:
    """One evaluation of the operator over one partition's rows."""

    def __init__(self, plan: TaskPlan, place: Place, connections: Connections = CONNECTIONS) -> None:
        self._plan = plan
        self._place = place
        self._connections = connections
        self._machine = machine_name(plan.host_per)

    def run(self, batches: RowBatches) -> RowBatches:
        """Yield the results of every partition that falls to this evaluation."""
        found, rows = first_rows(batches)
        partition = None if found is None else partition_of(found, self._plan.spec.partitions)
        begun = self._begin(partition)
        for owner, base_attempt in zip(begun["partitions"], begun["base_attempts"], strict=True):
            mine = rows if owner["partition"] == partition else iter(())
            results = self._exchange(
                begun, owner, base_attempt, (batch for batch in mine if batch.num_rows)
            )
            yield from results if self._plan.then is None else self._plan.then(results)

    def _exchange(
        self,
        begun: dict[str, Any],
        owner: dict[str, Any],
        base_attempt: int | None,
        rows: Iterable[pa.RecordBatch],
    ) -> RowBatches:
        plan, place = self._plan, self._place
        ticket = Ticket(
            start=place.run,
            query=place.query,
            operator=plan.spec,
            partition=owner["partition"],
            batch=place.batch,
            base=begun["base"],
            attempt=place.attempt,
            location=begun["location"],
            retain=plan.retain,
            commit=plan.commit,
            base_attempt=base_attempt,
        )
        client = HostClient(lambda again: self._locate(owner, again), plan.secret, self._connections)
        yield from client.exchange(ticket, rows, begun["seen_ms"])
        assert client.summary is not None
        self._ask("committed", {**self._told(), "summary": asdict(client.summary)})

    def _locate(self, owner: dict[str, Any], again: bool) -> str:
        """The address of the partition's host; `again` when the one given before did not answer."""
        if again and owner["address"] is not None:
            owner = self._begin(owner["partition"], avoid=owner["machine"])["partitions"][0]
        if owner["address"] is not None:
            return str(owner["address"])
        return ensure_host(self._host_settings()).address

    def _host_settings(self) -> HostSettings:
        plan = self._plan
        return HostSettings(
            application=plan.application,
            machine=self._machine,
            coordinator=plan.coordinator,
            secret=plan.secret,
            local=plan.local,
            memory_bytes=plan.memory_bytes,
            tcp=plan.tcp,
            service=plan.service,
            warm=plan.warm,
        )

    def _begin(self, partition: int | None, avoid: str | None = None) -> dict[str, Any]:
        plan = self._plan
        return self._ask(
            "begin",
            {
                **asdict(self._place),
                "uid": plan.uid,
                "partition": partition,
                "machine": self._machine,
                "spec": plan.spec.to_json(),
                "location": plan.location,
                "new": plan.new,
                "avoid": avoid,
                "nodes": plan.nodes,
            },
        )

    def _told(self) -> dict[str, Any]:
        """Who asks: a task of a run that is over gets no answer."""
        place = self._place
        return {
            "query": place.query,
            "run": place.run,
            "operator": self._plan.spec.name,
            "batch": place.batch,
        }

    def _ask(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        plan = self._plan
        try:
            client = self._connections.to(plan.coordinator)
            return call(client, plan.secret, action, request, timeout_s=_BEGIN_WITHIN_S)
        except Unreachable as error:
            self._connections.drop(plan.coordinator)
            raise HostUnavailable(
                f"the driver at {plan.coordinator} did not answer: {error.message}",
                hint="a firewall between executor and driver, or a driver that has ended",
            ) from None
