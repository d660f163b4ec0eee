"""The server of the pages: on loopback, behind a token, in a thread of its own.

Invariants: every path outside of `/<token>/` is 404; all that a page loads comes from this server.
Threads: Bokeh's event loop has its own; `start` returns when it listens, `stop` when it has ended.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from typing import Any

from headrace.errors import HeadraceError, QueryError
from headrace.pages.feed import Feed

UNUSED_MS = 5000
_START_WITHIN_S = 60.0


class View:
    """A page in a browser. A notebook shows it inline."""

    def __init__(self, feed: Feed, port: int = 0) -> None:
        try:
            import bokeh.server.server  # noqa: F401
        except ImportError:
            raise QueryError(
                "the view needs the package bokeh", hint="pip install 'headrace[view]'"
            ) from None
        self._token = secrets.token_urlsafe(16)
        self._feed = feed
        self._port = port
        self._server: Any = None
        self._failure: Exception | None = None
        self._ready, self._ended = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="headrace-view", daemon=True).start()
        if not self._ready.wait(_START_WITHIN_S):
            raise HeadraceError(
                "the view did not start in time", hint="try again on a machine that is less busy"
            )
        if self._failure is not None:
            raise QueryError(f"the view cannot listen: {self._failure}", hint="use another port")

    @property
    def url(self) -> str:
        """The page's address, with the token that it needs."""
        return f"http://127.0.0.1:{self._port}/{self._token}/"

    def stop(self) -> None:
        """End the server; harmless when repeated."""
        if not self._ended.is_set():
            self._server.io_loop.add_callback(self._leave)
            self._ended.wait(_START_WITHIN_S)

    def _leave(self) -> None:
        self._server.stop(wait=False)
        self._server.io_loop.stop()

    def _run(self) -> None:
        from bokeh.server.server import Server

        from headrace.pages.operator_page import OperatorPage
        from headrace.pages.overview import Overview

        for name in (
            "bokeh.server.views.ws",
            "tornado.access",
            "bokeh.server.server",
            "bokeh.server.tornado",
        ):
            logging.getLogger(name).setLevel(logging.ERROR)
        pages = {
            "/": lambda document: _made(Overview(document, self._feed)),
            "/operator": lambda document: _made(OperatorPage(document, self._feed)),
        }
        try:
            self._server = self._listening(Server, pages)
        except Exception as error:  # whatever it is, the caller raises it
            self._failure = error
            self._ready.set()
            return
        self._server.start()
        self._server.io_loop.add_callback(self._ready.set)
        self._server.io_loop.start()
        self._server.io_loop.close(all_fds=True)
        self._ended.set()

    def _listening(self, server: Any, pages: dict[str, Any]) -> Any:
        """The server at its port, or at a free one; the page's own address is the only allowed origin."""
        self._port = self._port or _free_port()
        return server(
            pages,
            address="127.0.0.1",
            port=self._port,
            prefix=f"/{self._token}",
            use_index=False,
            redirect_root=False,
            sign_sessions=True,
            secret_key=secrets.token_hex(32),
            allow_websocket_origin=[f"127.0.0.1:{self._port}", f"localhost:{self._port}"],
            unused_session_lifetime_milliseconds=UNUSED_MS,
            check_unused_sessions_milliseconds=UNUSED_MS,
        )

    def _repr_html_(self) -> str:
        return f'<iframe src="{self.url}" width="100%" height="860" style="border:0"></iframe>'

    def __repr__(self) -> str:
        return f"View({self.url})"


def _free_port() -> int:
    """A port that nobody uses; Bokeh needs it before it listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _made(page: object) -> None:
    """A document keeps its page alive by its callbacks."""
