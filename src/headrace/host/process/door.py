"""The host's plain door, for tasks that are JVM code: one connection is one transaction.

    task                                     host
    header: secret, ticket, seen_ms    ─▶    begin
    Arrow stream of `input_schema`     ─▶    apply, one by one
    "DONE"                             ─▶    finish
                                       ◀─    "R" and an Arrow stream of `output_schema`
                                             commit
                                       ◀─    trailer: the Summary, or the error
    In place of "R": "E" and the error as JSON. A header with `ping` in place of a ticket gets a frame back.

Invariants: rows that end without the word are those of a task that died; a connection that closes before
the commit aborts. Threads: one per connection.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.host.ahead.chain import ChainHints
from headrace.host.process.recent_errors import RecentErrors
from headrace.plan.lookahead import INPUT as INPUT_AHEAD
from headrace.plan.lookahead import RESULTS as RESULTS_AHEAD
from headrace.plan.spec import input_schema, output_schema
from headrace.wire.client import conform
from headrace.wire.contract import StateService, Summary, Ticket, Transaction
from headrace.wire.frames import PeerGone, SocketFile, is_closed, receive_exactly, send_frame
from headrace.wire.listener import Handler
from headrace.wire.rows import checked

log = logging.getLogger("headrace.host")

ALL_SENT = b"DONE"
RESULTS, FAILED = b"R", b"E"
_DRAIN_S = 10.0


class Door:
    """Handles the connections of a listener."""

    def __init__(
        self,
        service: StateService,
        errors: RecentErrors | None = None,
        hints: Handler | None = None,
        secret: str = "",
    ) -> None:
        self._service, self._hints, self._secret = service, hints, secret
        self._errors = errors or RecentErrors()

    def __call__(self, peer: socket.socket, request: dict[str, Any]) -> None:
        if "ping" in request:
            return send_frame(peer, {"pid": os.getpid()})
        if self._hints is not None and "hints" in request:
            return self._hints(peer, request["hints"])
        try:
            ticket = Ticket.of(request["ticket"])
            transaction = self._service.begin(ticket)
        except Exception as error:
            return refuse(peer, error)
        above = ChainHints(self._service, self._secret, ticket)
        exchange = DoorExchange(peer, ticket, transaction, request["seen_ms"], above)
        try:
            exchange.run()
        except BaseException as error:
            log.warning("%s: aborted: %s", _label(ticket), error)
            self._errors.add(ticket, error)
            transaction.abort()
            exchange.fail(error)
        finally:
            above.close()
        return None


class DoorExchange:
    """One transaction over one connection."""

    def __init__(
        self,
        peer: socket.socket,
        ticket: Ticket,
        transaction: Transaction,
        seen_ms: list[int | None],
        above: ChainHints,
    ) -> None:
        self._peer, self._above = peer, above
        self._ticket = ticket
        self._transaction = transaction
        self._seen_ms = seen_ms
        self._results: pa.ipc.RecordBatchStreamWriter | None = None
        self._ended = False  # all results are sent

    def run(self) -> None:
        self._take_rows()
        results = self._transaction.finish(self._seen_ms)
        self._peer.sendall(RESULTS)
        sink = pa.PythonFile(SocketFile(self._peer), mode="w")
        self._results = pa.ipc.new_stream(sink, output_schema(self._ticket.operator))
        for batch in results:
            self._above.hint(RESULTS_AHEAD, batch)
            self._results.write_batch(batch)
        self._end_results()
        if is_closed(self._peer):
            raise PeerGone("the task left before the commit")
        summary = self._transaction.commit()
        send_frame(self._peer, {"summary": summary_fields(summary)})

    def _take_rows(self) -> None:
        schema = input_schema(self._ticket.operator)
        rows = pa.ipc.open_stream(pa.PythonFile(SocketFile(self._peer), mode="r"))
        for batch in rows:
            conformed = conform(checked(batch), schema)
            self._above.hint(INPUT_AHEAD, conformed)
            self._transaction.apply(conformed)
        if receive_exactly(self._peer, len(ALL_SENT)) != ALL_SENT:
            raise PeerGone("the task left before its input ended")

    def fail(self, error: BaseException) -> None:
        """Send the error where the task expects one: in place of the results, or after them."""
        if self._results is None:
            return refuse(self._peer, error)
        with suppress(OSError, pa.ArrowException):
            self._end_results()
            send_frame(self._peer, as_json(error))
        return None

    def _end_results(self) -> None:
        if self._results is not None and not self._ended:
            self._ended = True
            self._results.close()


def summary_fields(summary: Summary) -> dict[str, Any]:
    """The summary as the JVM reads it, with the name of the state that the batch made."""
    return {**asdict(summary), "state_id": summary.state_id}


def refuse(peer: socket.socket, error: BaseException) -> None:
    """Send the error and read what the task still sends, or its system would drop the error unread."""
    with suppress(OSError):
        peer.sendall(FAILED)
        send_frame(peer, as_json(error))
        peer.shutdown(socket.SHUT_WR)
        peer.settimeout(_DRAIN_S)
        while peer.recv(1 << 20):
            pass


def as_json(error: BaseException) -> dict[str, Any]:
    if isinstance(error, HeadraceError):
        return {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    log.error("a transaction failed", exc_info=error)
    hint = "the traceback is in the state host's log"
    return {"error": "HeadraceError", "message": f"{type(error).__name__}: {error}", "hint": hint}


def _label(ticket: Ticket) -> str:
    return f"{ticket.operator.name} p{ticket.partition} batch {ticket.batch} attempt {ticket.attempt}"
