"""The state host's Flight server: one exchange is one transaction.

    client                                   server
    Ticket (JSON, descriptor)          ─▶    begin
    row batches of `input_schema`      ─▶    apply, one by one
    metadata {"seen_ms": […]}, done    ─▶    finish
                                       ◀─    result batches of `output_schema`
                                             commit
                                       ◀─    metadata: the Summary as JSON

Invariants: a stream that ends without the `seen_ms` message is a client that died, never an end of input; a
transaction that is not committed is aborted. Nothing is unpickled.
Threads: gRPC calls handlers from its own threads; the core is shared by the Unix and the TCP server.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headrace.host.process.conversation import ClientGone, serve_processor
from headrace.host.process.recent_errors import RecentErrors
from headrace.plan.spec import input_schema, output_schema
from headrace.wire.calls import answer, errors_cross
from headrace.wire.contract import StateService, Ticket, Transaction
from headrace.wire.rows import checked
from headrace.wire.secret import SecretRequired

log = logging.getLogger("headrace.host")


class HostCore:
    """The state and the way to stop, shared by both listeners."""

    def __init__(self, service: StateService, stop: Callable[[], None]) -> None:
        self.service = service
        self.stop = stop
        self.errors = RecentErrors()

    def act(self, kind: str) -> dict[str, Any]:
        if kind == "status":
            return self.service.status()
        if kind == "stop":
            self.stop()
            return {}
        if kind == "ping":
            return {"ok": True}
        raise NotImplementedError(f"no such action: {kind}")

    def exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Runs one transaction to its commit, or aborts it."""
        ticket = Ticket.from_json(descriptor.command.decode())
        transaction = self.service.begin(ticket)
        try:
            if ticket.operator.work.is_interactive:
                writer.begin(output_schema(ticket.operator))
                seen_ms = serve_processor(_chunks(reader), writer, transaction)
            else:
                seen_ms = _take_rows(ticket, reader, transaction)
                writer.begin(output_schema(ticket.operator))
            for results in transaction.finish(seen_ms):
                writer.write_batch(results)
            if context.is_cancelled():
                raise ClientGone("the client left before the commit")
            summary = transaction.commit()
        except BaseException as error:
            log.warning("%s: aborted: %s", _name(ticket), error)
            self.errors.add(ticket, error)
            transaction.abort()
            raise
        writer.write_metadata(summary.to_json().encode())


def _name(ticket: Ticket) -> str:
    return f"{ticket.operator.name} p{ticket.partition} batch {ticket.batch} attempt {ticket.attempt}"


def _take_rows(ticket: Ticket, reader: Any, transaction: Transaction) -> list[int | None]:
    """Applies rows until the closing message; returns its event times."""
    schema = input_schema(ticket.operator)
    for chunk in _chunks(reader):
        if chunk.app_metadata is not None:
            seen: list[int | None] = json.loads(chunk.app_metadata.to_pybytes())["seen_ms"]
            return seen
        if not chunk.data.schema.equals(schema):
            raise ValueError(f"rows have another schema than the ticket: {chunk.data.schema} not {schema}")
        transaction.apply(checked(chunk.data))
    raise ClientGone("the client left before its input ended")


def _chunks(reader: Any) -> Iterator[Any]:
    while True:
        try:
            yield reader.read_chunk()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise ClientGone(f"the client's stream broke: {error}") from None


class HostServer(flight.FlightServerBase):  # type: ignore[misc]
    """One listener. It serves from the moment it is made until `shutdown`."""

    def __init__(self, core: HostCore, location: str, secret: str) -> None:
        super().__init__(location, middleware={"secret": SecretRequired(secret)})
        self._core = core

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with errors_cross():
            self._core.exchange(context, descriptor, reader, writer)

    def do_action(self, context: Any, action: Any) -> list[flight.Result]:
        with errors_cross():
            return [answer(self._core.act(action.type))]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [("status", "what the host holds"), ("stop", "end the host"), ("ping", "is it there")]
