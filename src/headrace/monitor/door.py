"""How another process of the same user watches an application: a Unix socket beside its hosts' files.

`<state.local>/<application>/driver-<pid>.json` names the socket; the folder is closed to other users, so
there is no secret to show. One line of JSON is the request (`{"since": n}`), one line the answer.
Threads: one thread serves, one caller after another.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HostUnavailable, QueryError
from headrace.host.process.locks import is_dying, remove_socket, socket_path
from headrace.monitor.journal import Journal
from headrace.monitor.records import Record

_ANSWER_WITHIN_S = 10.0


class Door:
    """Serves a journal to processes of the same user, from `open` until `close`."""

    def __init__(self, folder: Path, application: str, name: str, journal: Journal) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = socket_path(folder, f"driver-{os.getpid():x}.sock")
        self._card = folder / f"driver-{os.getpid()}.json"
        handler = type("Handler", (_Handler,), {"journal": journal})
        remove_socket(self._path)
        self._server = socketserver.UnixStreamServer(str(self._path), handler)
        thread = threading.Thread(target=self._serve, name="headrace-door", daemon=True)
        thread.start()
        facts = {"pid": os.getpid(), "socket": str(self._path), "application": application, "name": name}
        self._card.write_text(json.dumps(facts))
        self._card.chmod(0o600)

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        self._card.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()
        remove_socket(self._path)


class _Handler(socketserver.StreamRequestHandler):
    journal: Journal
    timeout = _ANSWER_WITHIN_S

    def handle(self) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError):  # a caller that left, or is no caller
            for line in self.rfile:
                last, records = self.journal.since(int(json.loads(line)["since"]))
                self.wfile.write(json.dumps({"last": last, "records": records}).encode() + b"\n")
                return


@dataclass(frozen=True)
class Found:
    """A running application."""

    pid: int
    socket: str
    application: str
    name: str


def applications(local: Path) -> list[Found]:
    """The applications of this user that run on this machine, the newest last."""
    cards = sorted(local.glob("*/driver-*.json"), key=lambda path: path.stat().st_mtime)
    running = []
    for card in cards:
        with suppress(OSError, ValueError, TypeError):
            one = Found(**json.loads(card.read_text()))
            if Path(one.socket).exists() and not is_dying(one.pid):
                running.append(one)
    return running


def only(running: list[Found], local: Path, wanted: str = "") -> Found:
    """The application that is meant, or an error that lists what there is."""
    matching = [one for one in running if wanted in (one.application, one.name, str(one.pid))] or (
        [] if wanted else running
    )
    if len(matching) == 1:
        return matching[0]
    if not running:
        raise QueryError(
            f"no Headrace application runs on this machine (looked in {local})",
            hint="start a query first, or name the folder of spark.headrace.state.local with --local; "
            "for a query that has ended, name its checkpoint",
        )
    names = "; ".join(f"{one.application} ({one.name}, pid {one.pid})" for one in running)
    raise QueryError(
        f"{wanted or 'several applications run'}: {names}", hint="name one of them with --application"
    )


def ask(path: str, since: int) -> tuple[int, list[Record]]:
    """The records of an application after `since`; raises when it has ended."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(_ANSWER_WITHIN_S)
            client.connect(path)
            client.sendall(json.dumps({"since": since}).encode() + b"\n")
            with client.makefile("rb") as answer:
                values = json.loads(answer.readline())
    except (OSError, ValueError):
        raise HostUnavailable(
            "the application has ended", hint="headrace view <checkpoint> shows what it did"
        ) from None
    return int(values["last"]), list(values["records"])
