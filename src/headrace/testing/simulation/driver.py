"""A simulated driver: one start of the query, its tickets, and the batches as Spark runs them.

A batch has one task per partition. They begin in any order, run side by side and commit in any order. A
task that fails is tried again; after a few failures the batch fails, and with it the start. Threads: one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.checkpoint.log import LocalLog
from headrace.coordinator.placing.pins import Home, Pins
from headrace.errors import HeadraceError, ReadBack, StateMissing, TryAgain
from headrace.format.names import partition_prefix
from headrace.plan.options import CommitMode
from headrace.testing.simulation.machines import Machine, Machines
from headrace.testing.simulation.model import QUERY, Model, Rows, State, batch_of, state_of
from headrace.testing.simulation.stepped_crew import Crash
from headrace.wire.contract import Summary, Ticket

TRIES = 4  # of a task, as Spark has it
PART_ROWS = 3  # of an Arrow batch: hosts without memory spill between two of them


class Failed(Exception):
    """A batch failed, and with it its start of the query."""


@dataclass
class Driver:
    """One start."""

    number: int
    model: Model
    mode: CommitMode
    location: str
    machines: Machines
    hosts: list[Machine]  # of its application
    owners: list[Machine]  # by partition
    pins: Pins
    moves: int = 0
    spark: int = -1  # the last batch in Spark's commit log
    begun: list[int] = field(default_factory=list)
    attempt: int = 0
    attempts: dict[tuple[int, int], int] = field(default_factory=dict)  # the newest, by batch and partition
    orphans: list[tuple[Machine, int, Any, Rows]] = field(
        default_factory=list
    )  # transactions that nobody waits for

    def run(self, batch: int) -> None:
        """Runs a batch; raises `Failed`, or `StateMissing` where its base is gone."""
        self.begun = [number for number in self.begun if number < batch] + [batch]
        todo = list(range(self.model.partitions))
        for _ in range(TRIES):
            self.machines.randomness.shuffle(todo)
            todo = self._try(batch, todo)
            if not todo:
                return
        raise Failed

    def _try(self, batch: int, partitions: list[int]) -> list[int]:
        """Tries the tasks of these partitions; returns those that failed."""
        begun = [(number, self._begin(batch, number)) for number in partitions]
        ready = [(number, one) for number, one in begun if one is not None]
        self.machines.randomness.shuffle(ready)
        done = {number for number, one in ready if self._finish(batch, number, *one)}
        return [number for number in partitions if number not in done]

    def _begin(self, batch: int, partition: int) -> tuple[Machine, int, Any] | None:
        ticket = self.ticket(batch, partition)
        machine = self._place(partition, ticket.base)
        boots, transaction = machine.boots, self._call(machine, lambda: machine.service.begin(ticket))
        return None if transaction is None else (machine, boots, transaction)

    def _finish(self, batch: int, partition: int, machine: Machine, boots: int, transaction: Any) -> bool:
        """Rows, results and commit of one task. A task that Spark gives up may live on as an orphan."""
        if machine.boots != boots:
            return False
        if self.machines.randomness.random() < 0.03:
            self.orphans.append((machine, boots, transaction, self.model.rows(batch, partition)))
            return False
        expected = self.model.expected(batch, partition)

        def whole() -> Summary:
            results = exchange(transaction, self.model.rows(batch, partition))
            assert results == expected, f"batch {batch} gave {results}, not {expected}"
            summary: Summary = transaction.commit()
            self._check_newest(machine, transaction.guard.run, batch, partition)
            return summary

        summary = self._call(machine, whole)
        if summary is None:
            if machine.boots == boots:
                self._call(machine, transaction.abort)
            return False
        home = Home(self.location, partition_prefix(QUERY, self.model.spec.name, partition))
        self.pins.committed(QUERY, self.model.spec.name, home, summary)
        return True

    def _check_newest(self, machine: Machine, run: int, batch: int, partition: int) -> None:
        """No host acknowledges beside an entry of a later start, whose epoch may be acknowledged too."""
        home = partition_prefix(QUERY, self.model.spec.name, partition)
        entries = LocalLog.of(machine.disk, self.location, home).entries()
        later = [entry for entry in entries if entry.run > run]
        assert not later, f"run {run} acknowledged batch {batch} beside {later[-1]}"

    def _place(self, partition: int, base: int | None) -> Machine:
        """The owner of a partition. It may move, unless its base is only on the disk of its machine."""
        if self.machines.randomness.random() < 0.15:
            owner, other = self.owners[partition], self.machines.randomness.choice(self.hosts)
            is_same_disk = other.disk == owner.disk
            if is_same_disk or not self.pins.holds((QUERY, self.model.spec.name, partition), base):
                self.moves += other is not owner
                self.owners[partition] = other
        return self.owners[partition]

    def haunt(self) -> bool:
        """Lets an orphan commit what Spark gave up; whether there was one."""
        if not self.orphans:
            return False
        machine, boots, transaction, rows = self.orphans.pop()
        if machine.boots == boots:
            self._call(machine, lambda: (exchange(transaction, rows), transaction.commit()))
        return True

    def _call(self, machine: Machine, run: Callable[[], Any]) -> Any:
        """A call to a host; None when it failed or the host has ended."""
        try:
            with self.machines.calling(machine):
                return run()
        except Crash:
            machine.boot()
        except StateMissing:
            raise
        except (TryAgain, ReadBack):
            pass
        return None

    def ticket(self, batch: int, partition: int) -> Ticket:
        self.attempt += 1
        self.attempts[batch, partition] = self.attempt
        base = max((number for number in self.begun if number < batch), default=None)
        base_attempt = None if base is None else self.attempts.get((base, partition))
        return Ticket(
            f"start-{self.number}",
            QUERY,
            self.model.spec,
            partition,
            batch,
            base,
            self.attempt,
            self.location,
            3,
            self.mode,
            base_attempt,
        )


def exchange(transaction: Any, rows: Rows) -> State:
    """Sends the rows of a task in parts, and reads its results."""
    for start in range(0, len(rows), PART_ROWS):
        transaction.apply(batch_of(rows[start : start + PART_ROWS]))
    return state_of(transaction.finish([]))


def is_ours(error: BaseException) -> bool:
    """Whether an error is one that a driver may get."""
    return isinstance(error, HeadraceError | Failed)
