"""Protects running queries: every sink and trigger, operators in a chain, a host that dies between
batches, memory of queries that end, and the host's door against callers who do not know the secret.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark.sql.streaming import StreamingQuery
from streaming_case import Case, Rows

import headrace as hr
from headrace.plan.spec import input_schema
from headrace.plan.times import TIMES
from headrace.spark.build import describe
from headrace.wire.calls import connect
from headrace.wire.contract import Ticket

pytestmark = pytest.mark.spark

FIRST = [("a", 0, 1.0), ("b", 1, 2.0), ("a", 2, 4.0)]
SECOND = [("a", 3, 8.0), ("c", 4, 16.0)]
CHANGED: Rows = [("a", 2, 5.0), ("a", 3, 13.0), ("b", 1, 2.0), ("c", 1, 16.0)]


@pytest.fixture
def fed(case: Case) -> Case:
    case.feed(*FIRST)
    case.feed(*SECOND)
    return case


def test_the_noop_sink(fed: Case) -> None:
    writer = fed.totals().writeStream.format("noop").option("checkpointLocation", str(fed.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    spec = fed.state_at(1).spec
    order = [
        0,
        *(1 + [acc.kind for acc in spec.work.accumulators].index(kind) for kind in ("count", "sum")),
    ]
    rows = sorted(tuple(row[index] for index in order) for row in fed.state_at(1).rows())
    assert rows == [("a", 3, 13.0), ("b", 1, 2.0), ("c", 1, 16.0)]


def test_the_memory_sink(fed: Case) -> None:
    writer = fed.totals().writeStream.format("memory").queryName("totals_in_memory").outputMode("append")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(map(tuple, fed.spark.table("totals_in_memory").collect())) == CHANGED


def test_the_file_sink_over_two_runs(case: Case, tmp_path: Path) -> None:
    for events in (FIRST, SECOND):
        case.feed(*events)
        writer = case.totals().writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(case.checkpoint)).outputMode("append")
        writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(map(tuple, case.spark.read.parquet(str(tmp_path / "out")).collect())) == CHANGED


def test_two_operators_in_one_query(fed: Case) -> None:
    by_count = (
        hr.stream(fed.totals()).name("by-count").groupBy("n").agg(users=hr.count(), top=hr.max("user"))
    )
    assert fed.run(by_count) == [(0, 1, 1, "b"), (0, 2, 1, "a"), (1, 1, 2, "c"), (1, 3, 1, "a")]
    assert len(fed.state_at(1, "totals").rows()) == 3
    assert len(fed.state_at(1, "by-count").rows()) == 3


@pytest.fixture
def running(case: Case) -> Iterator[tuple[StreamingQuery, Rows]]:
    """A query under a processing time trigger that is still there when its input is done."""
    got: Rows = []
    case.feed(*FIRST)
    writer = case.totals().writeStream.option("checkpointLocation", str(case.checkpoint))
    query = (
        writer.foreachBatch(lambda batch, _: got.extend(map(tuple, batch.collect())))
        .trigger(processingTime="50 milliseconds")
        .start()
    )
    query.processAllAvailable()
    yield query, got
    query.stop()


def test_a_processing_time_trigger(case: Case, running: tuple[StreamingQuery, Rows]) -> None:
    query, got = running
    case.feed(*SECOND)
    query.processAllAvailable()
    assert sorted(got) == CHANGED


def test_a_host_killed_between_batches_is_replaced(
    case: Case, running: tuple[StreamingQuery, Rows]
) -> None:
    query, got = running
    killed = case.kill_hosts()
    assert len(killed) == 1
    case.feed(*SECOND)
    query.processAllAvailable()
    assert sorted(got) == CHANGED
    assert query.exception() is None
    assert killed != [host.pid for host in case.coordinator.hosts().values()]


def test_a_hung_host_is_ended_and_its_process_named(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is stopped, so it keeps its lock and its socket and answers nothing."""
    monkeypatch.setattr(describe, "TIMES", replace(TIMES, host_watch_s=0.2, host_hung_s=2.0))
    case.kill_hosts()  # the next one is watched with these times
    case.feed(*FIRST)
    got = case.run(case.totals())
    await_condition(lambda: len(case.coordinator.hosts()) == 1, "no heartbeat")
    (host,) = case.coordinator.hosts().values()
    os.kill(host.pid, signal.SIGSTOP)
    case.feed(*SECOND)
    got += case.run(case.totals())
    assert sorted(row[1:] for row in got) == CHANGED
    await_condition(lambda: not Path(f"/proc/{host.pid}").exists(), "the process that hung is still there")
    folder = Path(str(case.spark.conf.get("spark.headrace.state.local"))) / case.coordinator.application
    assert any(f"process {host.pid}" in path.read_text() for path in folder.glob("host-*.log"))


def test_an_ended_query_leaves_the_hosts_memory_and_a_running_one_keeps_its(
    case: Case, running: tuple[StreamingQuery, Rows], tmp_path: Path
) -> None:
    query, got = running
    other = replace(case, checkpoint=tmp_path / "other")
    ended = other.totals().writeStream.format("noop").option("checkpointLocation", str(other.checkpoint))
    stopped = ended.trigger(availableNow=True).start()
    stopped.awaitTermination()
    for _ in range(2):  # a status of before the end shows nothing
        await_next_status(case)
    await_stores(case, {query.id: {"rmw"}, stopped.id: set()})
    case.feed(*SECOND)
    query.processAllAvailable()
    assert sorted(got) == CHANGED


def await_next_status(case: Case) -> None:
    """Waits for one more heartbeat of the only host."""
    (before,) = case.coordinator.hosts().values()
    await_condition(lambda: before not in case.coordinator.hosts().values(), "no heartbeat")


def await_stores(case: Case, expected: dict[str, set[str]]) -> None:
    """Waits until the host's status lists these open stores of these queries."""

    def stores(query: str) -> set[str]:
        (host,) = case.coordinator.hosts().values()
        parts = host.status.get("partitions", ())
        return {part["store"] for part in parts if part["query"] == query and part["store"]}

    await_condition(
        lambda: {query: stores(query) for query in expected} == expected, f"stores differ from {expected}"
    )


def await_condition(holds: Callable[[], bool], message: str) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, message
        time.sleep(0.05)


@pytest.mark.parametrize("secret", [None, "", "0" * 64])
def test_without_the_secret_a_caller_gets_nothing(
    case: Case, running: tuple[StreamingQuery, Rows], secret: str | None
) -> None:
    query, _ = running
    local = Path(case.spark.conf.get("spark.headrace.state.local") or "") / case.coordinator.application
    (ready,) = local.glob("host-*.ready")
    headers = [] if secret is None else [(b"authorization", f"Bearer {secret}".encode())]
    options = flight.FlightCallOptions(timeout=20, headers=headers)
    spec = case.state_at(0).spec
    ticket = Ticket(
        case.coordinator.application, query.id, spec, 0, 1, 0, 10**6, str(case.state), 20
    ).to_json()
    client = connect(json.loads(ready.read_text())["address"])
    try:
        for action in ("ping", "status", "stop"):
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.do_action(flight.Action(action, b"{}"), options))
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.list_actions(options))
        with pytest.raises(pa.ArrowException, match="unauthenticated"):
            first_answer(client, ticket, options, input_schema(spec))
    finally:
        client.close()
    assert stat.S_IMODE(local.stat().st_mode) == 0o700
    assert not any(case.coordinator.secret in path.read_text() for path in local.glob("host-*"))
    case.feed(*SECOND)
    query.processAllAvailable()  # the host is still there and was not fenced by the stranger
    assert query.exception() is None


def first_answer(
    client: flight.FlightClient, ticket: str, options: flight.FlightCallOptions, schema: pa.Schema
) -> flight.FlightStreamChunk:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(ticket.encode()), options)
    writer.begin(schema)
    writer.done_writing()
    return reader.read_chunk()
