"""A host whose background work stands still until a test continues it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.steps import Moment
from headrace.host.state.service import PartitionService
from headrace.host.state.upkeep import Upkeep
from headrace.plan.options import CommitMode
from headrace.testing.clock import ManualClock
from headrace.testing.faults.faulty_blobs import FaultyBlobs, Outcome
from headrace.testing.simulation.model import QUERY, SPEC, State, batch_of, state_of
from headrace.testing.simulation.stepped_crew import SteppedExecutor, SteppedJobs, stepped_crew
from headrace.wire.contract import Summary, Ticket


class Host:
    """A host whose background work stands still until `jobs` continue."""

    def __init__(self, folder: Path, local: str = "local", *, fsync: bool = False) -> None:
        self.folder, self.local = folder, folder / local
        self.jobs, self.clock, self.away = SteppedJobs(random.Random(0)), ManualClock(), False
        crew = stepped_crew(self.jobs, self.clock, self._probe)
        locations = Locations(self.local, wrap=self._wrap, clock=self.clock)
        upkeep = Upkeep(SteppedExecutor(self.jobs))
        self.service = PartitionService(64 << 20, locations, crew, upkeep, fsync=fsync)
        self.moments: list[Moment] = []
        self.at: Callable[[Moment], None] = lambda moment: None

    def _probe(self, moment: Moment) -> None:
        self.moments.append(moment)
        self.at(moment)

    def _wrap(self, blobs: Blobs) -> Blobs:
        return FaultyBlobs(blobs, lambda operation: Outcome.REFUSED if self.away else Outcome.DONE)

    def run(
        self, number: int, attempt: int | None = None, mode: CommitMode = "async", query: str = QUERY
    ) -> Summary:
        summary, _ = self.results(number, attempt, mode, query)
        return summary

    def results(
        self, number: int, attempt: int | None = None, mode: CommitMode = "async", query: str = QUERY
    ) -> tuple[Summary, State]:
        ticket = self.ticket(number, number + 1 if attempt is None else attempt, mode)
        transaction = self.service.begin(replace(ticket, query=query))
        try:
            transaction.apply(batch_of([("a", 1), (f"b{number}", 1)]))
            state = state_of(transaction.finish([]))
            return transaction.commit(), state
        except Exception:
            transaction.abort()
            raise

    def ticket(self, number: int, attempt: int, mode: CommitMode = "async") -> Ticket:
        base = number - 1 if number else None
        shared = str(self.folder / "shared")
        return Ticket("start", QUERY, SPEC, 0, number, base, attempt, shared, 3, mode)

    def manifests(self) -> list[int]:
        return sorted(int(path.name[1:13]) for path in (self.folder / "shared").glob("**/*.manifest"))

    def logged(self) -> list[str]:
        return sorted(path.name[:13] for path in self.local.glob("log/**/*.log"))
