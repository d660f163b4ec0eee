"""A simulated driver: one start of the query, its tickets, and the batches as Spark runs them.

A batch has one task per partition. They begin in any order, run side by side and commit in any order. A
task that fails is tried again; after a few failures the batch fails, and with it the start. Threads: one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.coordinator.placing.pins import Home, Pins
from headrace.errors import HeadraceError, ReadBack, StateMissing, TryAgain
from headrace.host.state.service import PartitionService
from headrace.plan.options import CommitMode
from headrace.testing.simulation.machines import Machine, Machines
from headrace.testing.simulation.model import QUERY, Model, Rows, State, batch_of, state_of
from headrace.testing.simulation.stepped_crew import Crash
from headrace.wire.contract import Summary, Ticket

TRIES = 4  # of a task, as Spark has it
PART_ROWS = 3  # of an Arrow batch: hosts without memory spill between two of them


class Failed(Exception):
    """A batch failed, and with it its start of the query."""


@dataclass(frozen=True)
class Task:
    """One attempt at a partition's part of a batch."""

    machine: Machine
    host: PartitionService
    ticket: Ticket
    transaction: Any
    rows: Rows

    @property
    def is_alive(self) -> bool:
        """Whether the machine still has the host that began it."""
        return self.machine.service is self.host


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
    orphans: list[Task] = field(default_factory=list)  # nobody waits for them

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
        ready = [(number, task) for number, task in begun if task is not None]
        self.machines.randomness.shuffle(ready)
        done = {number for number, task in ready if self._finish(task)}
        return [number for number in partitions if number not in done]

    def _begin(self, batch: int, partition: int) -> Task | None:
        ticket = self.ticket(batch, partition)
        machine = self._place(partition, ticket.base)
        host = machine.service
        transaction = self._call(machine, lambda: host.begin(ticket))
        if transaction is None:
            return None
        self.machines.fences.began(host, ticket, transaction.guard.run)
        return Task(machine, host, ticket, transaction, self.model.rows(batch, partition))

    def _finish(self, task: Task) -> bool:
        """Rows, results and commit of one task. A task that Spark gives up may live on as an orphan."""
        if not task.is_alive:
            return False
        if self.machines.randomness.random() < 0.03:
            self.orphans.append(task)
            return False
        ticket = task.ticket
        expected = self.model.expected(ticket.batch, ticket.partition)

        def whole() -> Summary:
            results = exchange(task)
            assert results == expected, f"batch {ticket.batch} gave {results}, not {expected}"
            return self._commit(task)

        summary = self._call(task.machine, whole)
        if summary is None:
            if task.is_alive:
                self._call(task.machine, task.transaction.abort)
            return False
        self.pins.committed(QUERY, ticket.operator.name, Home(self.location, ticket.prefix), summary)
        return True

    def _commit(self, task: Task) -> Summary:
        begun_ms = self.machines.clock.monotonic_ms()
        summary: Summary = task.transaction.commit()
        run = task.transaction.guard.run
        self.machines.fences.acknowledged(task.machine.disk, task.ticket, run, begun_ms)
        return summary

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
        task = self.orphans.pop()
        if task.is_alive:
            self._call(task.machine, lambda: (exchange(task), self._commit(task)))
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


def exchange(task: Task) -> State:
    """Sends the rows of a task in parts, and reads its results."""
    for start in range(0, len(task.rows), PART_ROWS):
        task.transaction.apply(batch_of(task.rows[start : start + PART_ROWS]))
    return state_of(task.transaction.finish([]))


def is_ours(error: BaseException) -> bool:
    """Whether an error is one that a driver may get."""
    return isinstance(error, HeadraceError | Failed)
