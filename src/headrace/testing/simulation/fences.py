"""What a simulation watches beside results: who may begin and acknowledge while several starts are alive.

An older start may be slow to notice a newer one, but only within bounds. Without these checks its harm
would show in rare histories only, because several protections cover for each other.
Threads: one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headrace.checkpoint.log import LocalLog
from headrace.clock import Clock
from headrace.plan.times import TIMES
from headrace.wire.contract import Ticket

Claim = tuple[int, int]  # run and attempt


@dataclass
class Fences:
    """The starts that hosts have begun for."""

    clock: Clock
    _runs: dict[int, float] = field(default_factory=dict)  # when a run was first seen
    _begun: dict[tuple[object, int], Claim] = field(default_factory=dict)  # newest, by host and partition

    def began(self, host: object, ticket: Ticket, run: int) -> None:
        """No host begins for an older claim than before."""
        self._runs.setdefault(run, self.clock.monotonic_ms())
        key, claim = (host, ticket.partition), (run, ticket.attempt)
        newest = self._begun.get(key, claim)
        assert claim >= newest, f"{claim} began on partition {ticket.partition} after {newest}"
        self._begun[key] = claim

    def acknowledged(self, disk: Path, ticket: Ticket, run: int, begun_ms: float) -> None:
        """Refuses the acknowledgement of a start that had to know of a later one.

        A commit looks at the runs unless it has just done so. And no host acknowledges beside an entry of a
        later start in the log of its disk, because the epoch of that entry may be acknowledged too.
        """
        fresh_ms = TIMES.run_fresh_s * 1000
        known = [other for other, ms in self._runs.items() if other > run and ms < begun_ms - fresh_ms]
        assert not known, f"run {run} acknowledged batch {ticket.batch} long after run {max(known)} began"
        entries = LocalLog.of(disk, ticket.location, ticket.prefix).entries()
        later = [entry for entry in entries if entry.run > run]
        assert not later, f"run {run} acknowledged batch {ticket.batch} beside {later[-1]}"
