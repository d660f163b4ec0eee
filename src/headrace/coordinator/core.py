"""The coordinator: what tasks and hosts ask the driver, one method per question.

Threads: any. `_changed` guards machines and owners; each operator has its own lock. No lock is held while
waiting for another, except that waiting for a machine's address releases `_changed`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.coordinator.ended import QUERIES_KEPT, forgotten, held_queries
from headrace.coordinator.operators import BeginRequest, QueryView, TrackedOperator
from headrace.coordinator.placement import LOST_S, is_lost, owner_of
from headrace.coordinator.progress import BatchProgress
from headrace.coordinator.waits import StorageWaits
from headrace.errors import Fenced, HeadraceError
from headrace.host.contract import Summary

log = logging.getLogger("headrace.coordinator")

_ADDRESS_WITHIN_S = 120.0


@dataclass(frozen=True)
class HeardHost:
    """The newest heartbeat of a machine's host."""

    pid: int
    addresses: dict[str, str]
    status: dict[str, Any]


class Coordinator:
    """Answers tasks and hosts."""

    def __init__(self, view: QueryView, now_s: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._now_s = now_s
        self._changed = threading.Condition()
        self._operators: dict[tuple[str, str], TrackedOperator] = {}
        self._owners: dict[tuple[str, str, int], str] = {}
        self._heard_s: dict[str, float] = {}
        self._hosts: dict[str, HeardHost] = {}
        self._waits = StorageWaits()
        self._ending = False

    def act(self, action: str, said: dict[str, Any]) -> dict[str, Any]:
        """Answer one question."""
        if action == "begin":
            return self.begin(BeginRequest.of(said))
        if action == "committed":
            operator = self._known(said["query"], said["operator"])
            operator.committed(said["run"], said["batch"], Summary.of(said["summary"]))
            return {}
        if action == "heartbeat":
            return self.heartbeat(
                said["machine"], HeardHost(said["pid"], said["addresses"], said["status"])
            )
        raise HeadraceError(f"no such action: {action}")

    def begin(self, request: BeginRequest) -> dict[str, Any]:
        """Which partitions the task runs, from which version, at which hosts; the batch's event times."""
        begun = self._operator(request.query, request.spec.name).begin(request)
        owners = [self._place(request, partition) for partition in begun.partitions]
        attempts = [begun.base_attempts.get(partition) for partition in begun.partitions]
        return {
            "base": begun.base,
            "base_attempts": attempts,
            "location": begun.location,
            "partitions": owners,
            "seen_ms": begun.seen_ms,
        }

    def heartbeat(self, machine: str, host: HeardHost) -> dict[str, Any]:
        """Take note of a host; the answer says whether to leave, and which queries it holds in vain."""
        with self._changed:
            self._hosts[machine] = host
            self._heard_s[machine] = self._now_s()
            self._waits.heard(machine, host.status.get("storage_waits_ms", {}), self._now_s())
            self._changed.notify_all()
        ending, held = self._ending or not self._view.alive(), held_queries(host.status)
        active = self._view.active_queries() if held and not ending else None
        return {"ending": ending, "ended": [] if active is None else sorted(held - active)}

    def end(self) -> list[HeardHost]:
        """From now on hosts are told to leave; returns those that were heard of."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            return list(self._hosts.values())

    def hosts(self) -> dict[str, HeardHost]:
        """The newest heartbeat of every machine that counts as alive."""
        with self._changed:
            now_s = self._now_s()
            return {m: host for m, host in self._hosts.items() if now_s - self._heard_s[m] <= LOST_S}

    def storage_waits_s(self) -> dict[str, float]:
        """For how long hosts that are alive have been waiting for storage, by location."""
        with self._changed:
            for machine in [m for m in self._hosts if is_lost(m, self._heard_s, self._now_s())]:
                self._waits.forget(machine)
            return self._waits.longest_s()

    def progress(self, query: str, operator: str) -> list[BatchProgress]:
        """The last batches of an operator in the query's current run, oldest first."""
        with self._changed:
            tracked = self._operators.get((query, operator))
        return [] if tracked is None else tracked.progress()

    def operators(self, query: str) -> list[str]:
        """Names of the query's operators that have begun."""
        with self._changed:
            return sorted(name for known, name in self._operators if known == query)

    def _operator(self, query: str, name: str) -> TrackedOperator:
        with self._changed:
            found = self._operators.get((query, name))
            if found is not None:
                return found
            found = self._operators[query, name] = TrackedOperator(self._view)
        self._forget_ended()
        return found

    def _forget_ended(self) -> None:
        """An application may start queries for ever; what is kept of those that ended is bounded."""
        with self._changed:
            queries = list(dict.fromkeys(query for query, _ in self._operators))
        if len(queries) <= QUERIES_KEPT:
            return
        gone = forgotten(queries, lambda query: self._view.active_run(query) is not None)
        with self._changed:
            self._operators = {key: held for key, held in self._operators.items() if key[0] not in gone}
            self._owners = {key: owner for key, owner in self._owners.items() if key[0] not in gone}

    def _known(self, query: str, name: str) -> TrackedOperator:
        with self._changed:
            if (query, name) not in self._operators:
                raise Fenced(f"operator {name} of query {query} has not begun here")
            return self._operators[query, name]

    def _place(self, request: BeginRequest, partition: int) -> dict[str, Any]:
        """The owner of a partition; waits until it can be reached when it is another machine."""
        key = (request.query, request.spec.name, partition)
        with self._changed:
            if self._owners.get(key) == request.avoid and request.avoid is not None:
                self._await_sign_of(request.avoid)
            deadline = self._now_s() + _ADDRESS_WITHIN_S
            while True:
                now_s = self._now_s()
                owner = owner_of(self._owners.get(key), request.machine, self._heard_s, now_s)
                if owner != self._owners.get(key):
                    log.info("partition %s of %s is placed on %s", partition, key[1], owner)
                    self._owners[key] = owner
                if owner == request.machine:
                    self._heard_s[owner] = now_s  # its host may be about to start
                    return {"partition": partition, "machine": owner, "address": None}
                host = self._hosts.get(owner)
                if host is not None and "tcp" in host.addresses:
                    return {"partition": partition, "machine": owner, "address": host.addresses["tcp"]}
                if now_s > deadline or self._ending:
                    raise Fenced(f"the state host of {owner} cannot be reached from {request.machine}")
                self._changed.wait(0.2)

    def _await_sign_of(self, machine: str) -> None:
        """A task could not reach this machine: believe it lost unless a new heartbeat comes soon."""
        before, deadline = self._heard_s.get(machine), self._now_s() + 3.0
        while self._now_s() < deadline and not self._ending:
            self._changed.wait(0.2)
            if self._heard_s.get(machine) != before:
                return
        self._heard_s.pop(machine, None)
        self._hosts.pop(machine, None)
        self._waits.forget(machine)
