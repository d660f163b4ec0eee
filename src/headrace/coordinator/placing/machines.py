"""The machines of an application: their hosts, and which of them owns a partition.

Invariants: a partition has one owner. It moves only when its owner is lost, and while its newest version is
in a local log only, no further than to another host with the same disk.
Threads: any. `_changed` guards everything; storage is read outside of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.clock import Clock
from headrace.coordinator.placing.pins import PartitionKey, Pins, out_of_reach
from headrace.coordinator.placing.placement import is_lost, owner_of, owner_on_disk
from headrace.coordinator.placing.waits import StorageWaits
from headrace.coordinator.placing.waking import StartHosts, Waking
from headrace.errors import Fenced
from headrace.plan.times import TIMES

log = logging.getLogger("headrace.coordinator")

_LOOK_MS = 200.0


@dataclass(frozen=True)
class HostReport:
    """The newest heartbeat of a machine's host."""

    pid: int
    addresses: dict[str, str]
    status: dict[str, Any]
    disk: str = ""  # id of the disk of its local log
    in_memory: bool = False  # whether that disk is memory of the machine


class Machines:
    """Hosts by machine, owners by partition."""

    def __init__(self, clock: Clock, pins: Pins, start_hosts: StartHosts) -> None:
        self._clock, self._pins = clock, pins
        self._waking = Waking(start_hosts)
        self._changed = threading.Condition()
        self._owners: dict[PartitionKey, str] = {}
        self._heartbeats_s: dict[str, float] = {}
        self._hosts: dict[str, HostReport] = {}
        self._disks: dict[str, str] = {}  # by machine; stays when the host is lost
        self._waits = StorageWaits()
        self._executors: dict[str, set[str]] = {}  # by machine, as Spark names locations
        self._ending = False

    # ── hosts ────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, machine: str, host: HostReport) -> bool:
        """Records a heartbeat; returns whether the application is ending."""
        with self._changed:
            self._hosts[machine] = host
            if host.disk:
                self._disks[machine] = host.disk
            self._heartbeats_s[machine] = self._now_s()
            self._waits.update(machine, host.status.get("storage_waits_ms", {}), self._now_s())
            self._changed.notify_all()
            return self._ending

    def end(self) -> list[HostReport]:
        """Makes every later heartbeat stop its host; returns the hosts of all machines."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            return list(self._hosts.values())

    def hosts(self) -> dict[str, HostReport]:
        """The newest heartbeat of every live machine."""
        with self._changed:
            return {machine: host for machine, host in self._hosts.items() if not self._is_lost(machine)}

    def storage_waits_s(self) -> dict[str, float]:
        """How long live hosts have been waiting for storage, by location."""
        with self._changed:
            for machine in filter(self._is_lost, self._hosts):
                self._waits.drop(machine)
            return self._waits.longest_s()

    # ── owners ───────────────────────────────────────────────────────────────────────────────

    def ran(self, key: PartitionKey, machine: str, executor: str) -> None:
        """The machine's host has committed the partition; `executor` is empty if the task ran elsewhere."""
        with self._changed:
            self._owners[key] = machine
            self._heartbeats_s.setdefault(machine, self._now_s())
            if executor:
                self._executors.setdefault(machine, set()).add(executor)

    def owns(self, machine: str, key: PartitionKey) -> bool:
        """Whether the machine has the partition."""
        with self._changed:
            return self._owners.get(key) == machine

    def drop(self, queries: Iterable[str]) -> None:
        """Drops the partitions of queries that ended long ago."""
        dropped = set(queries)
        with self._changed:
            self._owners = {key: owner for key, owner in self._owners.items() if key[0] not in dropped}

    def forget(self, query: str, operator: str) -> None:
        """Forgets the owners of an operator, whose partitions are others from now on."""
        with self._changed:
            mine = (query, operator)
            self._owners = {key: owner for key, owner in self._owners.items() if key[:2] != mine}

    def owner(self, key: PartitionKey, base: int | None) -> dict[str, Any]:
        """The machine of a partition's state; None where any machine may have it."""
        pinned = self._is_pinned(key, base)
        with self._changed:
            assigned = self._owners.get(key)
            machine = assigned if assigned is None or not self._is_lost(assigned) else None
            if pinned and assigned is not None:
                machine = self._on_disk(assigned, None) or assigned
            if machine is None:
                return {"machine": None, "door": None, "executors": []}
            executors = sorted(self._executors.get(machine, ()))
            return {"machine": machine, "door": self._address(machine, "tcp_door"), "executors": executors}

    def place(self, key: PartitionKey, base: int | None, machine: str, avoid: str | None) -> dict[str, Any]:
        """The owner of a partition for a task of `machine`, once its host can be reached."""
        with self._changed:
            if avoid is not None and self._owners.get(key) == avoid:
                self._await_sign_of(avoid)
            begun_s = self._now_s()
        while True:
            pinned = self._is_pinned(key, base)
            with self._changed:
                owner = self._settled(key, machine, pinned)
                answer = None if owner is None else self._answer(key, owner, machine)
                if answer is not None:
                    return answer
                now_s = self._now_s()
                if owner is None and self._waking.has_tried(begun_s, now_s):
                    raise out_of_reach(key, self._owners[key])
                if now_s > begun_s + TIMES.host_address_s or self._ending:
                    where = owner or self._owners[key]
                    raise Fenced(f"the state host of {where} cannot be reached from {machine}")
                self._clock.wait(self._changed, _LOOK_MS)

    def _is_pinned(self, key: PartitionKey, base: int | None) -> bool:
        """Whether a lost machine has the only copy of the base."""
        with self._changed:
            owner = self._owners.get(key)
            if owner is None or not self._is_lost(owner):
                return False
        return self._pins.holds(key, base)

    def _settled(self, key: PartitionKey, machine: str, pinned: bool) -> str | None:
        """The owner from now on; None while no host has the disk of a pinned partition."""
        assigned, now_s = self._owners.get(key), self._now_s()
        owner: str | None
        if pinned and assigned is not None:
            owner = self._on_disk(assigned, machine)
        else:
            owner = owner_of(assigned, machine, self._heartbeats_s, now_s)
        if owner is not None and owner != assigned:
            log.info("partition %s of %s is placed on %s", key[2], key[1], owner)
            self._owners[key] = owner
        return owner

    def _on_disk(self, assigned: str, requester: str | None) -> str | None:
        return owner_on_disk(assigned, requester, self._disks, self._heartbeats_s, self._now_s())

    def _answer(self, key: PartitionKey, owner: str, machine: str) -> dict[str, Any] | None:
        """How a task of `machine` reaches the owner; None before the owner's first heartbeat."""
        if owner == machine:
            self._heartbeats_s[owner] = self._now_s()  # the host of this machine may not have started yet
            return {"partition": key[2], "machine": owner, "address": None, "door": None}
        address = self._address(owner, "tcp")
        if address is None:
            return None
        door = self._address(owner, "tcp_door")
        return {"partition": key[2], "machine": owner, "address": address, "door": door}

    def _address(self, machine: str, kind: str) -> str | None:
        host = self._hosts.get(machine)
        return None if host is None else host.addresses.get(kind)

    def _await_sign_of(self, machine: str) -> None:
        """Counts a machine that a task could not reach as lost, unless a new heartbeat arrives soon."""
        before, deadline = self._heartbeats_s.get(machine), self._now_s() + TIMES.host_sign_s
        while self._now_s() < deadline and not self._ending:
            self._clock.wait(self._changed, _LOOK_MS)
            if self._heartbeats_s.get(machine) != before:
                return
        self._heartbeats_s.pop(machine, None)
        self._hosts.pop(machine, None)
        self._waits.drop(machine)

    def _is_lost(self, machine: str) -> bool:
        return is_lost(machine, self._heartbeats_s, self._now_s())

    def _now_s(self) -> float:
        return self._clock.monotonic_ms() / 1000
