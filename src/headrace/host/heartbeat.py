"""The host's pulse: tells the coordinator that it is there, and ends the host when the driver is gone.

A refused connection means that the driver's process is gone, and the host leaves after `GONE_S`. A driver
that does not answer may only be busy or far away, and gets `SILENT_S`.
Threads: one of its own; `addresses` is set by the main thread once it listens.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError
from headrace.host.contract import StateService
from headrace.host.settings import HostSettings
from headrace.host.wire import NoAnswer, call, connect

log = logging.getLogger("headrace.host")

PERIOD_S, GONE_S, SILENT_S = 1.0, 4.0, 30.0


def should_leave(failure: HeadraceError | None, silent_s: float) -> bool:
    """Whether the driver counts as gone after `silent_s` without an answer."""
    if failure is None:
        return False
    return silent_s >= (SILENT_S if isinstance(failure, NoAnswer) else GONE_S)


class Heartbeat:
    """Beats from `start` until `stop`; calls `leave` once when the driver is gone or ending."""

    def __init__(self, settings: HostSettings, leave: Callable[[], None]) -> None:
        self._settings = settings
        self._leave = leave
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._addresses: dict[str, str] = {}
        self._service: StateService | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def listening(self, addresses: dict[str, str], service: StateService) -> None:
        """From now on say where the host can be reached and what it holds, and hear of queries that end."""
        self._service = service
        self._addresses = addresses

    def _run(self) -> None:
        client = connect(self._settings.coordinator)
        answered = time.monotonic()
        while not self._stopped.is_set():
            failure: HeadraceError | None = None
            try:
                answer = self._beat(client)
                if answer["ending"]:
                    log.info("the driver is ending")
                    return self._leave()
                self._hear(answer["ended"])
                answered = time.monotonic()
            except HeadraceError as error:
                failure = error
            if should_leave(failure, time.monotonic() - answered):
                log.info("the driver is gone: %s", failure)
                return self._leave()
            self._stopped.wait(PERIOD_S)
        return None

    def _hear(self, ended: list[str]) -> None:
        if self._service is None or not ended:
            return
        try:
            self._service.ended(ended)
        except Exception:  # as below
            log.exception("memory of ended queries is still held")

    def _told(self) -> dict[str, Any]:
        try:
            return {} if self._service is None else self._service.status()
        except Exception:  # a pulse that stops over its decoration would leave the host behind for ever
            log.exception("no status")
            return {}

    def _beat(self, client: Any) -> dict[str, Any]:
        beat = {
            "machine": self._settings.machine,
            "pid": os.getpid(),
            "addresses": self._addresses,
            "status": self._told(),
        }
        return call(client, self._settings.secret, "heartbeat", beat, timeout_s=3)
