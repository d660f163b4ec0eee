"""Calls between hosts, tasks and the coordinator: Arrow Flight and JSON.

An error of ours crosses as JSON inside a Flight error and comes out as the same class. Any other failure
of a call means that no answer came (`Unreachable`), or that the other side has a bug; its log has the
details.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headrace.errors import HeadraceError, HostUnavailable, from_json
from headrace.wire.secret import bearer

log = logging.getLogger("headrace.wire")

# A proxy from the environment must never see state, batches may be large, and a peer that restarts must not
# inherit the back-off of its dead predecessor. A keepalive ping detects a machine that vanished. A Flight
# server refuses pings more often than every five minutes, and Python cannot change that.
_CHANNEL = [
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_TEXT_MAX = 2000  # an error travels in gRPC's headers, which are small
_NOBODY = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)


class Unreachable(HostUnavailable):
    """The other side is gone or not there yet."""


class NoAnswer(Unreachable):
    """The other side may be alive but did not answer in time."""


def connect(address: str) -> flight.FlightClient:
    """A client of the Flight server at `address`; connects at its first call."""
    return flight.connect(address, generic_options=_CHANNEL)


def call_options(secret: str, timeout_s: float | None = None) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=timeout_s, headers=[bearer(secret)])


def call(
    client: flight.FlightClient, secret: str, action: str, request: dict[str, Any], timeout_s: float
) -> dict[str, Any]:
    """Calls one action and waits for its JSON answer."""
    body = json.dumps(request).encode()
    try:
        results = list(client.do_action(flight.Action(action, body), call_options(secret, timeout_s)))
    except (pa.ArrowException, OSError) as error:
        raise understood(error) from None
    answer: dict[str, Any] = json.loads(results[0].body.to_pybytes()) if results else {}
    return answer


def understood(error: BaseException) -> HeadraceError:
    """The error of a failed call: the other side's own, or `Unreachable`."""
    theirs = from_json(str(error))
    if theirs is not None:
        return theirs
    text = str(error).partition(". gRPC client debug context")[0][:_TEXT_MAX]
    if isinstance(error, flight.FlightUnauthenticatedError):
        return HeadraceError("the secret was refused", hint="is another application using this address?")
    if isinstance(error, flight.FlightTimedOutError):
        return NoAnswer(f"no answer in time: {text}")
    if isinstance(error, (*_NOBODY, OSError)):
        return Unreachable(f"connection lost: {text}")
    return HeadraceError(f"the other side failed: {text}", hint="its log has the details")


@contextmanager
def errors_cross() -> Iterator[None]:
    """Sends errors of a handler to the caller; others than ours are also logged with a traceback."""
    try:
        yield
    except HeadraceError as error:
        raise flight.FlightServerError(_short(error).to_json()) from None
    except (flight.FlightError, pa.ArrowCancelled):
        raise
    except Exception as error:
        log.exception("a call failed")
        sent = HeadraceError(f"{type(error).__name__}: {error}", hint="the traceback is in the log")
        raise flight.FlightServerError(_short(sent).to_json()) from None


def _short(error: HeadraceError) -> HeadraceError:
    return type(error)(error.message[:_TEXT_MAX], hint=error.hint[:_TEXT_MAX])


def answer(value: dict[str, Any]) -> flight.Result:
    return flight.Result(json.dumps(value).encode())


def request_of(action: flight.Action) -> dict[str, Any]:
    """The JSON object that an action carries."""
    body = action.body.to_pybytes() if action.body is not None else b""
    request = json.loads(body or b"{}")
    if not isinstance(request, dict):
        raise HeadraceError("an action's body must be a JSON object")
    return request
