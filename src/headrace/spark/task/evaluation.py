"""One evaluation of a stateful task in Spark's Python worker.

The evaluation gets its partition and base version from the coordinator, sends the partition's rows to its
host, and yields the host's results. Only connections outlive an evaluation. Imports stay light: no Numba,
no pandas.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import HostUnavailable, QueryError
from headrace.host.process.hung import HungWatch, answering_host, ended
from headrace.host.process.lifecycle import ensure_host
from headrace.plan.partitions.groups import partition_of
from headrace.plan.partitions.layouts import Origin
from headrace.plan.spec import HASH
from headrace.plan.times import TIMES
from headrace.spark.task.machine import machine_name
from headrace.spark.task.task import RowBatches, TaskPlan, host_settings
from headrace.wire.calls import Unreachable, call
from headrace.wire.client import Connections, HostClient
from headrace.wire.contract import Summary, Ticket

if TYPE_CHECKING:
    pass

CONNECTIONS = Connections()  # of this worker process; a reused worker reuses them


@dataclass(frozen=True)
class Place:
    """The position of a task in a streaming query."""

    query: str
    run: str
    batch: int
    stage: int
    task: int
    attempt: int


def current_place(operator: str) -> Place:
    """The position of the running task, from Spark's task context."""
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


def spark_watermark_ms(operator: str, batch: int) -> int | None:
    """Spark's own watermark of a processor in a batch; None before the first, or without the JVM's node."""
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(f"headrace.watermark.{operator}")
    number, _, at_ms = (text or "").partition(":")
    return (int(at_ms) or None) if number == str(batch) else None


def first_rows(batches: RowBatches) -> tuple[int | None, RowBatches]:
    """The first row's hash and all batches with rows; None when there are none."""
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
        """Yields the results of every partition of this evaluation."""
        first_hash, rows = first_rows(batches)
        partition = None if first_hash is None else partition_of(first_hash, self._plan.spec.partitions)
        answer = self._begin(partition)
        for owner, base_attempt in zip(answer["partitions"], answer["base_attempts"], strict=True):
            mine = rows if owner["partition"] == partition else iter(())
            results = self._exchange(
                answer, owner, base_attempt, (batch for batch in mine if batch.num_rows)
            )
            if self._plan.then is not None:
                yield from self._plan.then(results)
            elif self._plan.spec.work.returns_rows:
                from headrace.spark.task.apply_calls import numbered_apart

                yield from numbered_apart(results, owner["partition"])
            else:
                yield from results

    def _exchange(
        self,
        answer: dict[str, Any],
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
            base=answer["base"],
            attempt=place.attempt,
            location=answer["location"],
            retain=plan.retain,
            commit=plan.commit,
            base_attempt=base_attempt,
            lookahead=answer.get("lookahead", ""),
            watermark_ms=None
            if plan.processor is None
            else spark_watermark_ms(plan.spec.name, place.batch),
            by_range=answer["placed"]["by_range"],
            origin=Origin.of(answer["placed"]["origin"]),
        )
        client = HostClient(lambda again: self._locate(owner, again), plan.secret, self._connections)
        summary = yield from self._watched(client, ticket, rows, answer)
        self._call("committed", {**self._batch_fields(), "summary": asdict(summary)})

    def _watched(
        self, client: HostClient, ticket: Ticket, rows: Iterable[pa.RecordBatch], answer: dict[str, Any]
    ) -> Generator[pa.RecordBatch, None, Summary]:
        """Exchanges rows for results; the machine's host is ended if it hangs meanwhile."""
        with HungWatch(host_settings(self._plan, self._machine)) as watch:
            try:
                if self._plan.processor is not None:
                    return (yield from self._process(client, ticket, rows, answer))
                yield from client.exchange(ticket, rows, answer["seen_ms"])
            except HostUnavailable:
                if watch.ended is None:
                    raise
                raise ended(self._machine, watch.ended) from None
        assert client.summary is not None
        return client.summary

    def _process(
        self, client: HostClient, ticket: Ticket, rows: Iterable[pa.RecordBatch], answer: dict[str, Any]
    ) -> Generator[pa.RecordBatch, None, Summary]:
        """Runs the user's processor; its state is committed when all of its results were taken."""
        from headrace.spark.bridge.worker import seldom_collecting
        from headrace.spark.processors.handle import QueryInfo
        from headrace.spark.processors.run import BatchTimes, over_state

        assert self._plan.processor is not None
        talk = client.converse(ticket)
        summary: Summary | None = None
        try:
            query = QueryInfo(self._place.query, self._place.run, self._place.batch)
            times = BatchTimes(answer["timestamp_ms"], talk.times.late_ms, talk.times.watermark_ms, query)
            task = over_state(self._plan.processor, answer["work"]).task(talk, times)
            rows_in = rows_out = 0

            def counted() -> Iterator[pa.RecordBatch]:
                nonlocal rows_in
                for batch in rows:
                    rows_in += batch.num_rows
                    yield batch

            with seldom_collecting():
                for results in task.run(counted()):
                    rows_out += results.num_rows
                    yield results
            summary = talk.finish(answer["seen_ms"])
            return replace(summary, rows_in=rows_in, rows_out=rows_out, late_rows=task.late_rows)
        finally:
            if summary is None:
                talk.cancel()

    def _locate(self, owner: dict[str, Any], again: bool) -> str:
        """The address of the partition's host; `again` when the previous address did not answer."""
        if again and owner["address"] is not None:
            owner = self._begin(owner["partition"], avoid=owner["machine"])["partitions"][0]
        if owner["address"] is not None:
            return str(owner["address"])
        settings = host_settings(self._plan, self._machine)
        return (answering_host if again else ensure_host)(settings).address

    def _begin(self, partition: int | None, avoid: str | None = None) -> dict[str, Any]:
        plan = self._plan
        return self._call(
            "begin",
            {
                **asdict(self._place),
                "uid": plan.uid,
                "partition": partition,
                "machine": self._machine,
                "spec": plan.spec.to_json(),
                "location": plan.location,
                "new": plan.new,
                "rescales": plan.rescales,
                "avoid": avoid,
                "times": asdict(plan.times),
                "prefetch": asdict(plan.prefetch),
            },
        )

    def _batch_fields(self) -> dict[str, Any]:
        """The fields that identify the batch; the coordinator fences a start that is over."""
        place = self._place
        return {
            "query": place.query,
            "run": place.run,
            "operator": self._plan.spec.name,
            "batch": place.batch,
        }

    def _call(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        plan = self._plan
        try:
            client = self._connections.to(plan.coordinator)
            return call(client, plan.secret, action, request, timeout_s=TIMES.begin_answer_s)
        except Unreachable as error:
            self._connections.drop(plan.coordinator)
            raise HostUnavailable(
                f"the driver at {plan.coordinator} did not answer: {error.message}",
                hint="a firewall between executor and driver, or a driver that has ended",
            ) from None
