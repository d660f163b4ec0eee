"""A task's side of an exchange with a host.

Invariants: an exchange that returned its summary is committed; one that raised before is not, or not
known to be, and a newer attempt starts again from the same base. A failure before the first row is retried
once, at a host that is located or started again.
Threads: one exchange belongs to one thread; `Connections` may be shared.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headrace.errors import HeadraceError, HostUnavailable
from headrace.plan.spec import input_schema
from headrace.plan.times import TIMES
from headrace.wire.calls import Unreachable, call, call_options, connect, understood
from headrace.wire.contract import Summary, Ticket
from headrace.wire.conversation import Conversation


class Connections:
    """The open connections of a process, by address."""

    def __init__(self) -> None:
        self._clients: dict[str, flight.FlightClient] = {}
        self._mutex = threading.Lock()

    def to(self, address: str) -> flight.FlightClient:
        with self._mutex:
            if address not in self._clients:
                self._clients[address] = connect(address)
            return self._clients[address]

    def drop(self, address: str) -> None:
        """Closes a connection whose other side is gone."""
        with self._mutex:
            client = self._clients.pop(address, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for address in list(self._clients):
            self.drop(address)


class Exchange:
    """One transaction at one host: iterate over the results, then read `summary`."""

    def __init__(self, client: flight.FlightClient, secret: str, ticket: Ticket) -> None:
        self.summary: Summary | None = None
        self._schema = input_schema(ticket.operator)
        descriptor = flight.FlightDescriptor.for_command(ticket.to_json().encode())
        try:
            self._writer, self._reader = client.do_exchange(descriptor, call_options(secret))
            self._writer.begin(self._schema)
        except (pa.ArrowException, OSError) as error:
            raise understood(error) from None

    def send(self, rows: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(conform(rows, self._schema))
        except (pa.ArrowException, OSError) as error:
            raise self._reason(error) from None

    def results(self, seen_ms: list[int | None]) -> Iterator[pa.RecordBatch]:
        """Ends the input and yields the results; afterwards `summary` is set."""
        try:
            self._writer.write_metadata(json.dumps({"seen_ms": seen_ms}).encode())
            self._writer.done_writing()
        except (pa.ArrowException, OSError) as error:
            raise self._reason(error) from None
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                break
            except (pa.ArrowException, OSError) as error:
                raise understood(error) from None
            if chunk.app_metadata is not None:
                self.summary = Summary.of(json.loads(chunk.app_metadata.to_pybytes()))
            if chunk.data is not None:
                yield chunk.data
        if self.summary is None:
            raise Unreachable("the host's stream ended before its commit")

    def cancel(self) -> None:
        """Cancels the exchange; the host aborts a transaction that is not committed."""
        self._reader.cancel()
        with suppress(pa.ArrowException, OSError):  # else Arrow reports the cancelled stream on stderr
            self._writer.close()

    def _reason(self, error: BaseException) -> HeadraceError:
        """The reason of a failed write; only the reader gets the host's error."""
        try:
            self._reader.read_chunk()
        except (pa.ArrowException, OSError, StopIteration) as read_error:
            if not isinstance(read_error, StopIteration):
                return understood(read_error)
        return understood(error)


class HostClient:
    """The client of one partition's host. `locate(again)` returns the address; `again` after a failure."""

    def __init__(self, locate: Callable[[bool], str], secret: str, connections: Connections) -> None:
        self._locate = locate
        self._secret = secret
        self._connections = connections
        self.summary: Summary | None = None

    def exchange(
        self, ticket: Ticket, batches: Iterable[pa.RecordBatch], seen_ms: list[int | None]
    ) -> Iterator[pa.RecordBatch]:
        """Sends the rows and yields the results; afterwards `summary` is set."""
        exchange, address = self._open(ticket)
        try:
            for rows in batches:
                exchange.send(rows)
            yield from exchange.results(seen_ms)
            self.summary = exchange.summary
        except Unreachable as error:
            self._connections.drop(address)
            raise HostUnavailable(
                f"the state host at {address} was lost in mid-batch {ticket.batch}: {error.message}",
                hint="the batch is not committed; Spark's retry, or a restart of the query, recovers it",
            ) from None
        finally:
            if self.summary is None:
                exchange.cancel()

    def converse(self, ticket: Ticket) -> Conversation:
        """A processor's conversation about the partition of the ticket."""
        try:
            return self._try_converse(ticket, self._locate(False))
        except (Unreachable, HostUnavailable):
            return self._try_converse(ticket, self._locate(True))

    def _try_converse(self, ticket: Ticket, address: str) -> Conversation:
        def lost() -> None:
            self._connections.drop(address)

        try:
            client = self._connections.to(address)
            call(client, self._secret, "ping", {}, timeout_s=10)
            return Conversation(client, self._secret, ticket, lost)
        except Unreachable:
            lost()
            raise

    def _open(self, ticket: Ticket) -> tuple[Exchange, str]:
        address = self._locate(False)
        try:
            return self._try_open(ticket, address), address
        except Unreachable:
            self._connections.drop(address)
        address = self._locate(True)
        return self._try_open(ticket, address), address

    def _try_open(self, ticket: Ticket, address: str) -> Exchange:
        # A stream over a dead connection fails only at a later write, so a ping comes first.
        client = self._connections.to(address)
        call(client, self._secret, "ping", {}, timeout_s=TIMES.host_ping_s)
        return Exchange(client, self._secret, ticket)


def conform(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in exactly this schema: Spark writes its session's time zone where the wire has UTC."""
    if rows.schema.equals(schema):
        return rows
    columns: list[Any] = []
    for field in schema:
        column = rows.column(field.name)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
