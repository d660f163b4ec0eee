"""The worker's side of a processor's conversation with a host (`host.process.conversation`).

Invariants: answers arrive in the order of their requests. A conversation that ends without `finish` leaves
the state as it was.
Threads: one conversation belongs to one thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headrace.errors import HostUnavailable
from headrace.plan.spec import input_schema
from headrace.plan.work.cells import VALUE
from headrace.wire.calls import Unreachable, call_options, understood
from headrace.wire.contract import ProcessorTimes, Summary, Ticket


class Conversation:
    """Requests of one transaction at one host; `lost` is called when the host is gone."""

    def __init__(
        self, client: flight.FlightClient, secret: str, ticket: Ticket, lost: Callable[[], None]
    ) -> None:
        self._ticket, self._lost = ticket, lost
        self.schema = input_schema(ticket.operator)
        descriptor = flight.FlightDescriptor.for_command(ticket.to_json().encode())
        with self._understood():
            self._writer, self._reader = client.do_exchange(descriptor, call_options(secret))
            self._writer.begin(self.schema)
        self.times = ProcessorTimes(**json.loads(self._read().app_metadata.to_pybytes()))

    def ask(self, rows: pa.RecordBatch) -> None:
        """Requests the cells of rows; `read` returns them."""
        self._send(rows, {"request": "read"})

    def read(self) -> pa.Array:
        """The values of the oldest request that was not read yet."""
        return self._read().data.column(VALUE)

    def write(self, rows: pa.RecordBatch) -> None:
        self._send(rows, {"request": "write"})

    def remind(self, rows: pa.RecordBatch) -> None:
        self._send(rows, {"request": "remind"})

    def due(self, until_ms: int) -> Iterator[pa.RecordBatch]:
        """The keys whose time has come."""
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in self.schema], schema=self.schema)
        self._send(empty, {"request": "due", "until_ms": until_ms})
        while True:
            chunk = self._read()
            if chunk.data is not None and chunk.data.num_rows:
                yield chunk.data
            if chunk.app_metadata is not None:
                return

    def finish(self, seen_ms: list[int | None]) -> Summary:
        """Ends the input and waits for the commit."""
        with self._understood():
            self._writer.write_metadata(json.dumps({"seen_ms": seen_ms}).encode())
            self._writer.done_writing()
        return Summary.of(json.loads(self._read().app_metadata.to_pybytes()))

    def cancel(self) -> None:
        """Gives up: the host aborts the transaction."""
        self._reader.cancel()
        with suppress(pa.ArrowException, OSError):
            self._writer.close()

    def _send(self, rows: pa.RecordBatch, message: dict[str, Any]) -> None:
        with self._understood():
            self._writer.write_with_metadata(rows, json.dumps(message).encode())

    def _read(self) -> Any:
        with self._understood():
            return self._reader.read_chunk()

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Turns errors of the stream into the host's own errors, or into a lost host."""
        try:
            yield
        except (pa.ArrowException, OSError, StopIteration) as error:
            ended = isinstance(error, StopIteration)
            reason = Unreachable("its stream ended before its commit") if ended else understood(error)
            if not isinstance(reason, Unreachable):
                raise reason from None
            self._lost()
            raise HostUnavailable(
                f"the state host was lost in mid-batch {self._ticket.batch}: {reason.message}",
                hint="the batch is not committed; Spark's retry, or a restart of the query, recovers it",
            ) from None
