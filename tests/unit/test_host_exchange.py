"""Protects the exchange between a task and a host: results, commit, abort, errors and the secret."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from host_fakes import POISON, UNKNOWN, FakeService, counting
from pyarrow import flight

from headrace.errors import Fenced, HeadraceError, HostUnavailable
from headrace.host.process.server import HostCore, HostServer
from headrace.plan.spec import input_schema
from headrace.wire.calls import call, call_options, connect
from headrace.wire.client import Connections, HostClient, conform
from headrace.wire.contract import Ticket

SECRET = "s" * 64


def ticket(batch: int = 0, base: int | None = None, attempt: int = 1) -> Ticket:
    return Ticket("app", "query", counting(), 0, batch, base, attempt, "/nowhere", 3)


def rows(*keys: int) -> pa.RecordBatch:
    arrays = [pa.array(keys, pa.int64()), pa.array(keys, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=input_schema(counting()))


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def address(service: FakeService, tmp_path: Path) -> Iterator[str]:
    location = f"grpc+unix://{tmp_path}/h.sock"
    server = HostServer(HostCore(service, lambda: None), location, SECRET)
    yield location
    server.shutdown()


@pytest.fixture
def client(address: str) -> Iterator[HostClient]:
    connections = Connections()
    yield HostClient(lambda again: address, SECRET, connections)
    connections.close()


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until it holds; a test that never gets there fails by its deadline."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_results_and_summary_come_back(client: HostClient, service: FakeService) -> None:
    got = pa.Table.from_batches(client.exchange(ticket(), [rows(1, 2), rows(2)], []))
    assert got.to_pydict() == {"k0": [1, 2], "a0": [1, 2]}
    assert client.summary is not None
    assert (client.summary.rows_in, client.summary.version) == (3, 0)
    got = pa.Table.from_batches(client.exchange(ticket(1, 0), [rows(2)], []))
    assert got.to_pydict() == {"k0": [2], "a0": [3]}
    assert service.notes["committed"] == 2
    assert service.notes["aborted"] == 0


def test_event_times_reach_the_commit(client: HostClient) -> None:
    list(client.exchange(ticket(), [rows(1)], [77]))
    assert client.summary is not None
    assert client.summary.watermark_ms == 77


def test_an_empty_input_still_commits(client: HostClient, service: FakeService) -> None:
    assert sum(batch.num_rows for batch in client.exchange(ticket(), [], [None])) == 0
    assert service.notes["committed"] == 1


@pytest.mark.parametrize("chunks", [1, 50])
def test_an_error_of_ours_keeps_its_class(client: HostClient, service: FakeService, chunks: int) -> None:
    with pytest.raises(Fenced, match="newer attempt") as raised:
        list(client.exchange(ticket(), [rows(POISON)] * chunks, []))
    assert raised.value.hint == "nothing to do"
    eventually(lambda: service.notes["aborted"] == 1)
    assert service.notes["committed"] == 0


def test_a_bug_is_told_apart(client: HostClient) -> None:
    with pytest.raises(HeadraceError, match="ZeroDivisionError: a bug") as raised:
        list(client.exchange(ticket(), [rows(UNKNOWN)], []))
    assert type(raised.value) is HeadraceError


def test_a_failing_input_aborts(client: HostClient, service: FakeService) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(1)
        eventually(lambda: service.notes["begun"] == 1)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        list(client.exchange(ticket(), batches(), []))
    eventually(lambda: service.notes["aborted"] == 1)
    assert service.notes["committed"] == 0


def test_a_client_that_disconnects_aborts(address: str, service: FakeService) -> None:
    client = connect(address)
    descriptor = flight.FlightDescriptor.for_command(ticket().to_json().encode())
    writer, _ = client.do_exchange(descriptor, call_options(SECRET))
    writer.begin(input_schema(counting()))
    writer.write_batch(rows(1))
    eventually(lambda: service.notes["begun"] == 1)
    writer.done_writing()  # as if the process died: the stream ends without the closing message
    eventually(lambda: service.notes["aborted"] == 1)
    assert service.notes["committed"] == 0
    client.close()


def test_results_that_nobody_takes_abort(client: HostClient, service: FakeService) -> None:
    service.is_endless = True  # the host is still sending when the client leaves
    results = client.exchange(ticket(), (rows(*range(200_000)) for _ in range(2)), [])
    next(results)
    results.close()
    eventually(lambda: service.notes["aborted"] == 1)
    assert service.notes["committed"] == 0


def test_rows_of_another_schema_are_refused(address: str, service: FakeService) -> None:
    client = connect(address)
    descriptor = flight.FlightDescriptor.for_command(ticket().to_json().encode())
    writer, reader = client.do_exchange(descriptor, call_options(SECRET))
    other = pa.record_batch({"x": [1]})
    writer.begin(other.schema)
    writer.write_batch(other)
    with pytest.raises(flight.FlightServerError, match="another schema"):
        reader.read_chunk()
    eventually(lambda: service.notes["aborted"] == 1)
    client.close()


def test_large_batches_pass(client: HostClient) -> None:
    column = pa.array(np.zeros(4_500_000, np.int64))  # twice 36 MB
    big = pa.RecordBatch.from_arrays([column, column], schema=input_schema(counting()))
    got = pa.Table.from_batches(client.exchange(ticket(), [big], []))
    assert got.to_pydict() == {"k0": [0], "a0": [4_500_000]}


@pytest.mark.parametrize("headers", [[], [(b"authorization", b"Bearer wrong")], [(b"authorization", b"")]])
def test_without_the_secret_nothing(
    address: str, service: FakeService, headers: list[tuple[bytes, bytes]]
) -> None:
    client = connect(address)
    options = flight.FlightCallOptions(headers=headers)
    calls: list[Callable[[], object]] = [
        lambda: list(client.do_action(flight.Action("status", b""), options)),
        lambda: list(client.do_action(flight.Action("stop", b""), options)),
        lambda: list(client.list_actions(options)),
        lambda: list(client.list_flights(options=options)),
        lambda: client.do_get(flight.Ticket(b"x"), options).read_all(),
        lambda: _exchange(client, options),
    ]
    for attempt in calls:
        with pytest.raises(flight.FlightUnauthenticatedError):
            attempt()
    assert not service.notes
    client.close()


def _exchange(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    descriptor = flight.FlightDescriptor.for_command(ticket().to_json().encode())
    _, reader = client.do_exchange(descriptor, options)
    reader.read_chunk()


def test_actions_answer(address: str) -> None:
    client = connect(address)
    assert call(client, SECRET, "ping", {}, 5) == {"ok": True}
    assert call(client, SECRET, "status", {}, 5) == {"notes": {}, "versions": 0}
    with pytest.raises(HeadraceError, match="no such action"):
        call(client, SECRET, "unpickle", {}, 5)
    client.close()


def test_nobody_there_is_host_unavailable(tmp_path: Path) -> None:
    requests: list[bool] = []

    def locate(again: bool) -> str:
        requests.append(again)
        return f"grpc+unix://{tmp_path}/none.sock"

    with pytest.raises(HostUnavailable):
        list(HostClient(locate, SECRET, Connections()).exchange(ticket(), [rows(1)], list))
    assert requests == [False, True]


def test_conform_takes_another_time_zone() -> None:
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC"))])
    batch = pa.RecordBatch.from_arrays([pa.array([5], pa.timestamp("us", tz="Europe/Berlin"))], names=["t"])
    assert conform(batch, schema).schema == schema
    assert conform(batch, schema).column(0).cast(pa.int64()).to_pylist() == [5]
