"""The host's heartbeat: reports the host to the coordinator, and ends it when the driver is gone.

A refused connection means that the driver's process is gone: the host leaves after `driver_gone_s`. A
driver that does not answer may be busy or far away: the host leaves after `driver_silent_s`.
Threads: one of its own; `addresses` is set by the main thread once it listens.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import HeadraceError
from headrace.host.process.disk import disk_id, is_in_memory
from headrace.host.process.recent_errors import RecentErrors
from headrace.host.process.settings import HostSettings
from headrace.plan.times import TIMES
from headrace.wire.calls import NoAnswer, call, connect
from headrace.wire.contract import StateService

log = logging.getLogger("headrace.host")


def should_leave(failure: HeadraceError | None, silent_s: float) -> bool:
    """Whether the driver counts as gone after `silent_s` without an answer."""
    if failure is None:
        return False
    return silent_s >= (TIMES.driver_silent_s if isinstance(failure, NoAnswer) else TIMES.driver_gone_s)


class Heartbeat:
    """Beats from `start` until `stop`; calls `leave` once when the driver is gone or ending."""

    def __init__(
        self, settings: HostSettings, leave: Callable[[], None], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._settings = settings
        self._leave = leave
        self._clock = clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._addresses: dict[str, str] = {}
        self._disk = disk_id(settings.folder)
        self._in_memory = is_in_memory(settings.folder)
        self._service: StateService | None = None
        self._errors: RecentErrors | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def listening(
        self, addresses: dict[str, str], service: StateService, errors: RecentErrors | None = None
    ) -> None:
        """Reports addresses and state with each heartbeat; answers name the queries that have ended."""
        self._service = service
        self._errors = errors
        self._addresses = addresses

    def _run(self) -> None:
        client = connect(self._settings.coordinator)
        answered_ms = self._clock.monotonic_ms()
        while not self._stopped.is_set():
            failure: HeadraceError | None = None
            try:
                answer = self._beat(client)
                if answer["ending"]:
                    log.info("the driver is ending")
                    return self._leave()
                self._hear(answer["ended"])
                answered_ms = self._clock.monotonic_ms()
            except HeadraceError as error:
                failure = error
            if should_leave(failure, (self._clock.monotonic_ms() - answered_ms) / 1000):
                log.info("the driver is gone: %s", failure)
                return self._leave()
            self._clock.wait(self._stopped, TIMES.heartbeat_s * 1000)
        return None

    def _hear(self, ended: list[str]) -> None:
        if self._service is None or not ended:
            return
        try:
            self._service.ended(ended)
        except Exception:  # as below
            log.exception("memory of ended queries is still held")

    def _status(self) -> dict[str, Any]:
        try:
            errors = [] if self._errors is None else self._errors.listed()
            return {} if self._service is None else {**self._service.status(), "errors": errors}
        except Exception:  # a pulse that stops over its decoration would leave the host behind for ever
            log.exception("no status")
            return {}

    def _beat(self, client: Any) -> dict[str, Any]:
        beat = {
            "machine": self._settings.machine,
            "pid": os.getpid(),
            "addresses": self._addresses,
            "status": self._status(),
            "disk": self._disk,
            "in_memory": self._in_memory,
        }
        return call(client, self._settings.secret, "heartbeat", beat, timeout_s=TIMES.heartbeat_answer_s)
