"""Simulated machines: each has a disk and a host; two may share a disk. Jobs of all hosts interleave.

A new application has hosts of its own. Those of the application before may go on beside them, over the same
disks: they were silent for a while, and know nothing of the new ones.

Invariants: while a request of one host is under way, jobs of the same host run, and jobs of hosts that are
not waiting themselves. So the end of a host never passes through the calls of another.
Threads: one.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.blob.base import Blobs
from headrace.checkpoint.steps import Moment
from headrace.host.state.service import PartitionService
from headrace.host.state.upkeep import Upkeep
from headrace.store.base.budget import SHARE_MIN
from headrace.testing.clock import ManualClock
from headrace.testing.faults.faulty_blobs import FaultyBlobs
from headrace.testing.faults.simulated_storage import SimulatedLocations, SimulatedStorage
from headrace.testing.simulation.fences import Fences
from headrace.testing.simulation.stepped_crew import Crash, SteppedExecutor, SteppedJobs, stepped_crew
from headrace.testing.simulation.weather import Weather

T = TypeVar("T")


@dataclass(frozen=True)
class Memory:
    """A host's limit, and the least share of a partition."""

    limit_bytes: int = 64 << 20
    share_min: int = SHARE_MIN


NO_MEMORY = Memory(1, 1)  # every part of a batch is spilled before the next one


class Machine:
    """One disk, and the host that runs now."""

    def __init__(self, world: Machines, disk: Path, memory: Memory, *, fsync: bool) -> None:
        self._world, self.disk, self._memory, self.fsync = world, disk, memory, fsync
        self.boot()

    def beside(self) -> Machine:
        """The same machine with the host of another application."""
        return Machine(self._world, self.disk, self._memory, fsync=self.fsync)

    def boot(self) -> None:
        """A new host; the one before it has ended with its jobs."""
        world = self._world
        self.jobs = SteppedJobs(world.randomness)
        crew = stepped_crew(self.jobs, world.clock, self._probe)
        locations = SimulatedLocations(self.disk, world.storage, self._faulty, world.clock)
        upkeep = Upkeep(SteppedExecutor(self.jobs))
        memory = self._memory
        self.service = PartitionService(
            memory.limit_bytes, locations, crew, upkeep, fsync=self.fsync, share_min=memory.share_min
        )

    def _probe(self, moment: Moment) -> None:
        self._world.weather.probe(moment)
        self._world.pause(self, moment)

    def _faulty(self, blobs: Blobs) -> Blobs:
        world = self._world
        return FaultyBlobs(blobs, world.weather.outcome, lambda _: world.delay(), world.weather.lost)

    @property
    def is_locked(self) -> bool:
        """Whether another job would wait for a lock of the one under way."""
        return self.service.is_locked

    def look(self) -> None:
        """Finds stalled steps."""
        for partition in self.service.partitions:
            partition.look()

    def lose_disk(self) -> None:
        shutil.rmtree(self.disk, ignore_errors=True)

    def tear_files(self, draw: random.Random) -> int:
        """A power loss: names of files that were not synced are there, but not all of their content."""
        files = sorted(path for path in self.disk.rglob("*") if path.is_file())
        torn = [path for path in files if draw.random() < 0.5]
        for path in torn:
            data = path.read_bytes()
            path.unlink()  # an open descriptor of an ended host keeps what it has
            path.write_bytes(_torn(data, draw))
        return len(torn)


class Machines:
    """All machines of a simulation, their clock, and whose request is under way."""

    def __init__(
        self, folder: Path, randomness: random.Random, storage: SimulatedStorage, weather: Weather
    ) -> None:
        self.randomness, self.storage, self.weather = randomness, storage, weather
        self.clock = ManualClock()
        self.fences = Fences(self.clock)
        self._active: list[Machine] = []
        shares_disk, fsync = randomness.random() < 0.3, randomness.random() < 0.2
        names = ["disk-0", "disk-0" if shares_disk else "disk-1"][: randomness.randint(1, 2)]
        memory = NO_MEMORY if randomness.random() < 0.3 else Memory()
        self.all = [Machine(self, folder / name, memory, fsync=fsync) for name in names]
        self.revived: list[Machine] = []  # of an application that was replaced
        self.meanwhile: Callable[[], None] | None = None  # runs while all hosts of an application pause

    @property
    def every(self) -> list[Machine]:
        return [*self.all, *self.revived]

    def replace(self, *, revives: bool) -> None:
        """Hosts for a new application; those before end, or go on without notice."""
        self.revived = self.all if revives else []
        self.all = [machine.beside() for machine in self.all]

    def pause(self, machine: Machine, moment: Moment) -> None:
        """All hosts of the application are silent for a moment: a task was checked, and is not logged."""
        if moment is not Moment.LOGGING or machine not in self.all or self.randomness.random() >= 0.02:
            return
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is None:  # one silence at a time
            return
        try:
            meanwhile()
        finally:
            self.meanwhile = meanwhile

    def delay(self) -> None:
        """A request is under way."""
        self.weather.delay(self.clock, self._meanwhile, self.look)

    def look(self) -> None:
        for machine in self.every:
            if machine not in self._active or machine is self._active[-1]:
                self._on(machine, machine.look)

    def step(self, machine: Machine) -> bool:
        """Runs one job of a machine whose calls are not under way; its host may end there."""
        return bool(self._on(machine, machine.jobs.step))

    def _meanwhile(self) -> bool:
        """Runs another job while one waits for storage, unless that job needs a lock of the waiting one."""
        free = [machine for machine in self.every if self._may_run(machine)]
        return bool(free) and self.step(self.randomness.choice(free))

    def _may_run(self, machine: Machine) -> bool:
        if self._active and machine is self._active[-1]:
            return not machine.is_locked
        return machine not in self._active

    def _on(self, machine: Machine, run: Callable[[], T]) -> T | None:
        """Runs a call of a machine. If its host ends, a new one boots, unless that host is the caller."""
        is_nested = bool(self._active) and machine is self._active[-1]
        try:
            with self.calling(machine):
                return run()
        except Crash:
            if is_nested:
                raise
            machine.boot()
            return None

    @contextmanager
    def calling(self, machine: Machine) -> Iterator[None]:
        """Calls of the driver or of a job to one machine's host."""
        self._active.append(machine)
        try:
            yield
        finally:
            self._active.pop()

    def drain(self) -> None:
        """Runs all jobs of all hosts."""
        while any(self.step(machine) for machine in self.all):
            pass

    def close(self) -> None:
        for machine in self.all:
            machine.service.close()


def _torn(data: bytes, draw: random.Random) -> bytes:
    """A beginning of the data, or all of it with zeros in between."""
    start = draw.randint(0, max(0, len(data) - 1))
    if draw.random() < 0.5:
        return data[:start]
    hole = draw.randint(min(1, len(data)), len(data) - start)
    return data[:start] + bytes(hole) + data[start + hole :]
