"""An S3 server on loopback for tests: moto's, in this process, with the faults of a real one.

    with S3Server() as server, server.environment():
        ObjectBlobs.open(server.location("state"), …)

`faults` is called before every request and returns its fate. A *lost* request ends with a closed
connection, before or after it was applied. Between `leave` and `come_back` the endpoint refuses
connections. Writes are applied one after another, because moto's put-if-absent, unlike that of S3, is not
atomic.
Threads: one per request; `requests` and `faults` may be used from any. Nothing is written to disk.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.request import Request, urlopen

from headrace.testing.faults.environment import environment_of
from headrace.testing.faults.faulty_blobs import Outcome

BUCKET = "headrace-tests"
_REPLIES = {
    503: ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    500: ("500 Internal Server Error", "InternalError", "We encountered an internal error."),
    409: ("409 Conflict", "ConditionalRequestConflict", "A conflicting operation is under way."),
    403: ("403 Forbidden", "AccessDenied", "Access Denied"),
}

Fault = Outcome | int | None  # an outcome, an HTTP status to answer with, or nothing
Faults = Callable[[str, str], Fault]  # takes the method and the path
Environ = dict[str, Any]


def no_faults(method: str, path: str) -> Fault:
    """All requests are served."""
    return None


class S3Server:
    """Runs from `start` to `stop`; a context manager does both."""

    def __init__(self) -> None:
        self.faults: Faults = no_faults
        self.requests: list[tuple[str, str]] = []  # method and path, in order of arrival
        self._writing = threading.Lock()
        self._is_away = False
        self._server: Any = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        self._listen(0)
        self.make_bucket(BUCKET)

    def _listen(self, port: int) -> None:
        from werkzeug.serving import make_server

        self._server = make_server("127.0.0.1", port, self._serve, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3-server", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Refuses connections from now on; open ones end unanswered; no object is lost."""
        assert self._thread is not None, "it runs"
        self._is_away = True
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def come_back(self) -> None:
        """Answers again, at the same port."""
        self._listen(self._server.server_port)
        self._is_away = False

    def stop(self) -> None:
        """Closes the socket and drops all objects."""
        if self._thread is None:
            return
        if self._is_away:
            self.come_back()
        with urlopen(Request(f"{self.endpoint}/moto-api/reset", method="POST")):
            pass
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._thread = None

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.faults = no_faults
        self.stop()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def location(self, prefix: str = "") -> str:
        """A state location on this server."""
        return f"s3://{BUCKET}/{prefix}".rstrip("/")

    def make_bucket(self, name: str) -> None:
        with urlopen(Request(f"{self.endpoint}/{name}", method="PUT")):
            pass

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables with which a process reaches this server and no other."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_REGION": "us-east-1",
            "AWS_METADATA_ENDPOINT": "http://127.0.0.1:1",
            "NO_PROXY": "127.0.0.1",
        }

    def environment(self) -> AbstractContextManager[None]:
        """Sets `variables` in this process until the block ends."""
        return environment_of(self.variables)

    def _serve(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self._is_away:
            return _hang_up(environ)
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path.startswith("/moto-api"):
            return self._answer(environ, start_response)
        self.requests.append((method, path))
        fault = self.faults(method, path)
        if isinstance(fault, int):
            return _refuse(fault, environ, start_response)
        applied, reported = Outcome.DONE.value if fault is None else fault.value
        if not applied and reported:
            return _refuse(503, environ, start_response)
        if not applied:
            _drain(environ)
            return _hang_up(environ)
        reply = self._answer(environ, start_response)
        return reply if reported else _hang_up(environ)

    def _answer(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            reads: Iterable[bytes] = self._app(environ, start_response)
            return reads
        with self._writing:
            writes: Iterable[bytes] = self._app(environ, start_response)
            return writes


def _refuse(status: int, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
    _drain(environ)
    line, code, message = _REPLIES[status]
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    start_response(line, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _hang_up(environ: Environ) -> Iterable[bytes]:
    """Ends the connection without an answer; Werkzeug ignores a closed peer."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError("an injected fault")


def _drain(environ: Environ) -> None:
    """Reads the body first; without this the client would see a reset connection and no answer."""
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
