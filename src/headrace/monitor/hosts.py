"""State hosts as their heartbeats show them: samples, and events when one ends, begins or waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.coordinator.placing.machines import HostReport
from headrace.monitor import records
from headrace.monitor.records import Record


class HostWatch:
    """Compares heartbeats with those before. One owner."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._silent: set[str] = set()  # machines whose host sends no heartbeat
        self._reported: dict[str, int] = {}  # the newest error of a host that is recorded, by machine
        self._waiting: dict[tuple[str, str], float] = {}

    def look(self, now_ms: int, hosts: Mapping[str, HostReport]) -> list[Record]:
        """A record of all hosts, and events of what has changed."""
        events = [*self._lives(now_ms, hosts), *self._waits(now_ms, hosts), *self._errors(hosts)]
        sampled = [_sample(machine, host) for machine, host in sorted(hosts.items())]
        return [*events, {"kind": "hosts", "at_ms": now_ms, "hosts": sampled}]

    def _lives(self, now_ms: int, hosts: Mapping[str, HostReport]) -> list[Record]:
        events = []
        for machine, host in hosts.items():
            before = self._pids.get(machine)
            if before is not None and before != host.pid:
                self._reported.pop(machine, None)
                events.append(
                    records.event(
                        now_ms,
                        f"host {machine}",
                        "warning",
                        f"the host ended (pid {before}) and another took its place (pid {host.pid})",
                        "its batch was repeated from the last committed version; "
                        f"why it ended is in <state.local>/…/host-{machine}.log",
                    )
                )
            elif machine in self._silent:
                text = f"the host sends heartbeats again (pid {host.pid})"
                events.append(records.event(now_ms, f"host {machine}", "note", text))
            self._silent.discard(machine)
            self._pids[machine] = host.pid
        for machine in self._pids.keys() - hosts.keys() - self._silent:
            self._silent.add(machine)
            text = f"the host sends no heartbeat (pid {self._pids[machine]})"
            hint = "its partitions move to the host of the next task"
            events.append(records.event(now_ms, f"host {machine}", "warning", text, hint))
        return events

    def _waits(self, now_ms: int, hosts: Mapping[str, HostReport]) -> list[Record]:
        events = []
        waiting = {
            (machine, location): float(ms)
            for machine, host in hosts.items()
            for location, ms in host.status.get("storage_waits_ms", {}).items()
        }
        for machine, location in waiting.keys() - self._waiting.keys():
            text, hint = f"storage does not answer: {location}", "batches go on when it is back"
            events.append(records.event(now_ms, f"host {machine}", "warning", text, hint))
        for place in self._waiting.keys() - waiting.keys():
            text = f"{place[1]} is back after {self._waiting[place] / 1000:.1f} s"
            events.append(records.event(now_ms, f"host {place[0]}", "note", text))
        self._waiting = waiting
        return events

    def _errors(self, hosts: Mapping[str, HostReport]) -> list[Record]:
        events = []
        for machine, host in hosts.items():
            last = self._reported.get(machine, 0)
            for error in host.status.get("errors", ()):
                if error["number"] > last:
                    self._reported[machine] = error["number"]
                    events.append(
                        records.event(
                            error["at_ms"], error["where"], "error", error["message"], error["hint"]
                        )
                    )
        return events


def _sample(machine: str, host: HostReport) -> dict[str, Any]:
    partitions = host.status.get("partitions", ())
    opened: dict[str, int] = {}
    for one in partitions:
        if one.get("store") is not None:
            opened[one["query"]] = opened.get(one["query"], 0) + 1
    return {
        "machine": machine,
        "pid": host.pid,
        "memory_limit_bytes": host.status.get("memory_limit_bytes", 0),
        "memory_bytes": sum(one.get("memory_bytes", 0) for one in partitions),
        "storage_waits_ms": host.status.get("storage_waits_ms", {}),
        "partitions": len(partitions),
        "opened": opened,
    }
