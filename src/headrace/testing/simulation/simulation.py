"""A seeded simulation of commits: one or two partitions and hosts, drivers like Spark, faulty storage.

One seed is one simulated query: a few batches in one of the commit modes, with faults drawn from the seed.
Requests are applied or not, reported or not, slow, or late and out of order
(`testing/simulation/weather.py`). Background jobs of all hosts run in any order, also while others wait for
storage. A host ends at any moment of the pipeline or at any request; steps stall; tasks are given up and
commit later. A driver that was replaced goes on, on the hosts of the new one or on its own beside them.
An application is silent in the middle of a batch, and a new one takes over. Partitions move between
machines; a local disk is full, lost, or torn by a power loss. No Spark, no threads, no clock.

Every batch must emit what a plain dict gives. A published version never changes. No host acknowledges a
batch beside a log entry of a later start, or long after one began. Only the loss of a local
disk loses a batch, only the last one, and `decide` withdraws only that one. At the end the state on shared
storage alone equals the model's.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.coordinator.placing.pins import Pins
from headrace.errors import StateMissing
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.plan.partitions.layouts import first_layout
from headrace.recovery.reconcile import OperatorFound, decide, versions_wanted
from headrace.recovery.redo import StateOf, missing
from headrace.testing.faults.simulated_storage import SimulatedStorage
from headrace.testing.simulation.driver import Driver, Failed, Task, exchange, is_ours
from headrace.testing.simulation.machines import Machine, Machines
from headrace.testing.simulation.model import QUERY, Model
from headrace.testing.simulation.stepped_crew import Crash
from headrace.testing.simulation.weather import STALL_MS, Climate, Weather

ATTEMPTS_MAX = 60


@dataclass
class Simulation:
    """One simulated query."""

    seed: int
    folder: Path
    met: Counter[str] = field(default_factory=Counter)  # events, by name
    disk_lost: bool = False  # since the last batch was committed

    def __post_init__(self) -> None:
        draw = self.randomness = random.Random(self.seed)
        self.mode: CommitMode = draw.choice(COMMIT_MODES)
        self.storage = SimulatedStorage(self.folder / "shared")
        self.weather = Weather(draw, Climate.drawn(draw), self.storage)
        self.model = Model.drawn(draw)
        self.machines = Machines(self.folder, draw, self.storage, self.weather)
        self.driver = self._driver(1)
        self.stale: Driver | None = None  # a driver that was replaced and goes on
        self.machines.meanwhile = self._replaced

    def _driver(self, number: int) -> Driver:
        """The first driver of an application: it has no record of which machine has which partition."""
        owners = [self.randomness.choice(self.machines.all) for _ in range(self.model.partitions)]
        pins = Pins(lambda location: self.storage)
        hosts = list(self.machines.all)
        return Driver(number, self.model, self.mode, self.storage.root, self.machines, hosts, owners, pins)

    # ── machines ─────────────────────────────────────────────────────────────────────────────

    def trouble(self) -> None:
        """The faults between two batches."""
        draw, machine = self.randomness, self.randomness.choice(self.machines.all)
        if self.machines.revived and draw.random() < 0.5:
            self._haunt()
        self.machines.clock.advance_ms(draw.choice((0.0, 300.0, 3_000.0)))
        for _ in range(draw.randint(0, 4)):
            self.machines.step(draw.choice(self.machines.every))
        if draw.random() < 0.05:
            self.machines.clock.advance_ms(STALL_MS)
            self.machines.look()
        if draw.random() < 0.1:
            self._end_host(machine)
        if self.mode != "sync" and draw.random() < 0.12:
            self._lose(machine)
        self.met["orphans"] += self.driver.haunt()
        if draw.random() < 0.3:
            self._haunt()
        if draw.random() < 0.06:
            self.restart()

    def _end_host(self, machine: Machine) -> None:
        machine.boot()
        if self.randomness.random() < 0.5:  # the driver has ended too
            self.restart()

    def _lose(self, machine: Machine) -> None:
        """The disk of a machine is lost, or its unsynced files are torn."""
        if self.randomness.random() < 0.3:
            machine.lose_disk()
            self.disk_lost = True
        elif not machine.fsync:
            torn = machine.tear_files(self.randomness)
            self.met["torn"] += torn
            self.disk_lost = self.disk_lost or torn > 0
        for each in self.machines.every:
            if each.disk == machine.disk:
                each.boot()

    # ── drivers ──────────────────────────────────────────────────────────────────────────────

    def restart(self) -> None:
        """A new start, in this application or in a new one; the driver before it may go on."""
        is_same, goes_on = self.randomness.random() < 0.7, self.randomness.random() < 0.5
        if is_same:
            self._start(list(self.driver.owners), self.driver.pins, goes_on=goes_on)
        else:
            self._new_application(goes_on=goes_on)

    def _new_application(self, *, goes_on: bool) -> None:
        """New hosts on the same machines; they first publish what is in the logs."""
        self.machines.replace(revives=goes_on)
        self.met["applications"] += 1
        self._start(goes_on=goes_on)
        self.publish_logs()

    def _start(
        self, owners: list[Machine] | None = None, pins: Pins | None = None, *, goes_on: bool
    ) -> None:
        before = self.driver
        self.driver = self._driver(before.number + 1)
        self.driver.spark, self.driver.begun = before.spark, list(before.begun)
        self.driver.owners, self.driver.pins = owners or self.driver.owners, pins or self.driver.pins
        self.stale = before if goes_on else None
        self.met["starts"] += 1
        self.met["moves"] += before.moves

    def _replaced(self) -> None:
        """An application is silent for a moment, in the middle of a batch, and another one takes over."""
        if self.driver.spark == self.model.batches - 1:
            return
        self.met["silences"] += 1
        self._new_application(goes_on=True)
        self._tried(self.batch)

    def _haunt(self) -> None:
        """The driver that was replaced runs one more batch, until a host refuses it."""
        stale = self.stale
        if stale is None or stale.spark == self.model.batches - 1:
            return
        self.met["stale batches"] += 1
        stale.pins = Pins(lambda location: self.storage)
        try:
            stale.run(stale.spark + 1)
            stale.spark += 1
        except Exception as error:
            if not is_ours(error):
                raise
            self.stale = None

    def run(self) -> None:
        for _ in range(ATTEMPTS_MAX * self.model.batches):
            if self.driver.spark == self.model.batches - 1:
                break
            self._tried(self.trouble)
            self._tried(self.batch)
        self.weather.clear()
        assert self.driver.spark == self.model.batches - 1, f"stuck after batch {self.driver.spark}"
        self.verify()

    def _tried(self, run: Callable[[], None]) -> None:
        """Runs faults or a batch; then the driver is restarted or repaired, unless it was replaced."""
        driver = self.driver
        try:
            run()
        except Exception as error:
            if not is_ours(error):
                raise
            if driver is not self.driver:
                self.stale = None
            elif isinstance(error, StateMissing):
                self.reconcile()
            elif isinstance(error, Failed):
                self.restart()
            else:
                raise

    def batch(self) -> None:
        """The next batch. Its driver is stale if it was replaced meanwhile."""
        driver, number = self.driver, self.driver.spark + 1
        if number == self.model.batches:
            return
        driver.run(number)
        if driver is not self.driver:
            driver.spark = number
        elif self.randomness.random() > 0.1:  # else Spark ends before it logs the commit, and replays
            self.driver.spark, self.disk_lost = number, False
        elif self.randomness.random() < 0.5:
            self.restart()

    def reconcile(self) -> None:
        """Repairs a missing version: it must be due to the lost disk, and one batch."""
        driver, name = self.driver, self.model.spec.name
        assert self.disk_lost, f"version {driver.spark} is missing, and no disk was lost"
        self.restart()
        self.publish_logs()
        state = StateOf(self.storage.root, QUERY, name, first_layout(self.model.partitions))
        versions = versions_wanted(driver.begun, driver.spark)
        missing_files = {version: missing(self.storage, state, version) for version in versions}
        operators = [OperatorFound(name, tuple(driver.begun), missing_files)]
        decision = decide(driver.spark, [driver.spark + 1], operators)
        if decision.action == "nothing":
            return
        assert decision.action == "withdraw", decision.reason
        assert decision.batch == driver.spark
        self.met["lost"] += 1
        self.restart()
        self.driver.spark, self.disk_lost, self.stale = driver.spark - 1, False, None
        self.machines.revived = []

    def publish_logs(self) -> None:
        """Finishes what is in the logs of the machines, in calm weather, as `hr.start` does."""
        climate, self.weather.climate, self.weather.is_disk_full = self.weather.climate, Climate(), False
        for partition in range(self.model.partitions):
            for machine in self.machines.all:
                self._settle(partition, machine)
        self.machines.drain()
        self.weather.climate = climate

    def _settle(self, partition: int, machine: Machine) -> bool:
        """Begins once at a machine, so that an entry of its log is published; whether the base is there."""
        for _ in range(2):  # the first call may raise why an earlier commit failed
            ticket = self.driver.ticket(self.driver.spark + 1, partition)
            try:
                with self.machines.calling(machine):
                    machine.service.begin(ticket).abort()
            except StateMissing:
                return False
            except Exception as error:
                if not is_ours(error):
                    raise
        return True

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def verify(self) -> None:
        """Checks that shared storage alone has the state once everything is published."""
        self._boot_all()
        self.restart()
        self.stale, self.machines.revived = None, []
        ready = [self._settle(number, owner) for number, owner in enumerate(self.driver.owners)]
        if not all(ready):
            self.reconcile()
            return self.run()
        self.machines.drain()
        self.machines.close()
        for machine in self.machines.all:
            machine.lose_disk()
        self._boot_all()
        for partition in range(self.model.partitions):
            self._verify(partition)
        self.machines.close()
        return None

    def _verify(self, partition: int) -> None:
        rows, expected = self.model.probe(partition)
        ticket = replace(self.driver.ticket(self.model.batches, partition), commit="sync")
        machine = self.machines.all[0]
        transaction = machine.service.begin(ticket)
        actual = exchange(Task(machine, machine.service, ticket, transaction, rows))
        assert actual == expected, f"the state of partition {partition} is {actual}, not {expected}"
        transaction.abort()

    def _boot_all(self) -> None:
        for machine in self.machines.all:
            machine.boot()


def simulate(seed: int) -> Simulation:
    """One simulated query; raises `AssertionError` when a check fails."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="headrace-simulation-", dir=memory if memory.is_dir() else None)
    try:
        simulation = Simulation(seed, Path(folder))
        simulation.run()
        return simulation
    except Crash as error:  # no call of the driver may let it through
        raise AssertionError("a host ended outside of a call") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
