"""A seeded simulation of commits: one partition, a driver like Spark, faulty storage, hosts that end.

One seed is one simulated query: a few batches in one of the commit modes, with faults drawn from the seed.
Requests are applied or not, reported or not, slow, or late and out of order
(`testing/simulation/weather.py`). Background jobs run in any order, also while others wait for storage. A
host ends at any moment of the pipeline or at any request; steps stall; a driver drops a batch; a local disk
is full or lost. No Spark, no threads, no clock.

Every batch must emit what a plain dict gives. A published version never changes. Only the loss of the local
disk loses a batch, only the last one, and `decide` withdraws only that one. At the end the state on shared
storage alone equals the model's.
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.clock import SystemClock
from headrace.errors import ReadBack, StateMissing, TryAgain
from headrace.host.state.service import PartitionService
from headrace.host.state.upkeep import Upkeep
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.plan.partitions.layouts import first_layout
from headrace.plan.spec import Accumulator, Field, Fold, OperatorSpec, input_schema
from headrace.recovery.reconcile import OperatorFound, decide, versions_wanted
from headrace.recovery.redo import StateOf, missing
from headrace.testing.clock import ManualClock
from headrace.testing.faults.faulty_blobs import FaultyBlobs
from headrace.testing.faults.simulated_storage import SimulatedLocations, SimulatedStorage
from headrace.testing.simulation.stepped_crew import Crash, SteppedExecutor, SteppedJobs, stepped_crew
from headrace.testing.simulation.weather import STALL_MS, Climate, Weather
from headrace.wire.contract import Ticket

QUERY = "query"
ATTEMPTS_MAX = 60
CHUNK = 100  # seeds that a process runs at a time
SPEC = OperatorSpec(
    name="sums",
    keys=(Field("k0", "string", "key"),),
    inputs=(Field("v0", "int64", "amount"),),
    work=Fold((Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64"))),
    window=None,
    emit="changes",
    timed=False,
    delays_ms=(),
    partitions=1,
)

State = dict[str, tuple[int, int]]
Rows = list[tuple[str, int]]


@dataclass
class Simulation:
    """One simulated query."""

    seed: int
    folder: Path
    randomness: random.Random = field(init=False)
    spark: int = -1  # the last batch in Spark's commit log
    begun: list[int] = field(default_factory=list)
    attempt: int = 0
    attempts: dict[int, int] = field(default_factory=dict)  # the newest attempt at each batch of this start
    starts: int = 0
    disk_lost: bool = False
    lost: int = 0

    def __post_init__(self) -> None:
        self.randomness = random.Random(self.seed)
        draw = self.randomness
        self.mode: CommitMode = draw.choice(COMMIT_MODES)
        self.batches = draw.randint(3, 7)
        self.storage = SimulatedStorage(self.folder / "shared")
        self.weather = Weather(draw, Climate.drawn(draw), self.storage)
        self.inputs = [self._rows() for _ in range(self.batches)]
        self.models = self._models()
        self.boot()

    def _rows(self) -> Rows:
        draw = self.randomness
        return [(f"key-{draw.randint(0, 12)}", draw.randint(-5, 5)) for _ in range(draw.randint(0, 12))]

    def _models(self) -> dict[int, State]:
        models: dict[int, State] = {-1: {}}
        for number, rows in enumerate(self.inputs):
            state = dict(models[number - 1])
            for key, amount in rows:
                count, total = state.get(key, (0, 0))
                state[key] = (count + 1, total + amount)
            models[number] = state
        return models

    # ── processes ────────────────────────────────────────────────────────────────────────────

    @property
    def local(self) -> Path:
        return self.folder / "local"

    def boot(self) -> None:
        """A new host; the one before it has ended with its jobs."""
        self.jobs, self.clock = SteppedJobs(self.randomness), ManualClock()
        crew = stepped_crew(self.jobs, self.clock, self.weather.probe)
        self.service = PartitionService(
            64 << 20, self._locations(), crew, Upkeep(SteppedExecutor(self.jobs))
        )

    def _locations(self) -> Locations:
        def wrap(blobs: Blobs) -> Blobs:
            return FaultyBlobs(blobs, self.weather.outcome, self._delay, self.weather.lost)

        return SimulatedLocations(self.local, self.storage, wrap, self.clock)

    def _delay(self, operation: str) -> None:
        self.weather.delay(self.clock, self._meanwhile, self._look)

    def _meanwhile(self) -> bool:
        """Runs another job while one waits for storage, unless that job needs a lock of the waiting one."""
        is_locked = any(partition.is_locked for partition in self.service._partitions.values())
        return not is_locked and self.jobs.step()

    def _look(self) -> None:
        for partition in self.service._partitions.values():
            partition.look()

    def trouble(self) -> None:
        """The faults between two batches."""
        draw = self.randomness
        for _ in range(draw.randint(0, 4)):
            self.jobs.step()
        if draw.random() < 0.05:
            self.clock.advance_ms(STALL_MS)
            self._look()
        if draw.random() < 0.1:
            raise Crash
        if self.mode != "sync" and draw.random() < 0.05:
            shutil.rmtree(self.local, ignore_errors=True)
            self.disk_lost = True
            raise Crash

    # ── the driver ───────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        for _ in range(ATTEMPTS_MAX * self.batches):
            if self.spark == self.batches - 1:
                break
            try:
                self.trouble()
                self.batch(self.spark + 1)
            except Crash:
                self.after_crash()
            except (TryAgain, ReadBack):
                continue
            except StateMissing:
                self.reconcile()
        self.calm()
        assert self.spark == self.batches - 1, f"seed {self.seed}: stuck after batch {self.spark}"
        self.verify()

    def after_crash(self) -> None:
        self.boot()
        if self.randomness.random() < 0.5:  # the driver has ended too
            self.starts, self.attempt, self.attempts = self.starts + 1, 0, {}

    def batch(self, number: int) -> None:
        self.begun = [batch for batch in self.begun if batch < number] + [number]
        transaction = self.service.begin(self.ticket(number))
        try:
            results = self._exchange(transaction, self.inputs[number])
            expected = {key: self.models[number][key] for key, _ in self.inputs[number]}
            assert results == expected, f"seed {self.seed}: batch {number} gave {results}, not {expected}"
            transaction.commit()
        except Exception:
            transaction.abort()
            raise
        if self.randomness.random() > 0.1:  # else Spark ends before it logs the commit, and replays
            self.spark, self.disk_lost = number, False

    def ticket(self, number: int) -> Ticket:
        self.attempt += 1
        self.attempts[number] = self.attempt
        base = max((batch for batch in self.begun if batch < number), default=None)
        base_attempt = None if base is None else self.attempts.get(base)
        start, where = f"start-{self.starts}", self.storage.root
        return Ticket(start, QUERY, SPEC, 0, number, base, self.attempt, where, 3, self.mode, base_attempt)

    def _exchange(self, transaction: Any, rows: Rows) -> State:
        if rows:
            transaction.apply(batch_of(rows))
        return state_of(transaction.finish([]))

    def reconcile(self) -> None:
        """Repairs a missing version: it must be due to the lost disk, and one batch."""
        assert self.disk_lost, f"seed {self.seed}: version {self.spark} is missing, and no disk was lost"
        state = StateOf(self.storage.root, QUERY, SPEC.name, first_layout(1))
        versions = versions_wanted(self.begun, self.spark)
        missing_files = {version: missing(self.storage, state, version) for version in versions}
        decision = decide(
            self.spark, [self.spark + 1], [OperatorFound(SPEC.name, tuple(self.begun), missing_files)]
        )
        assert decision.action == "withdraw", f"seed {self.seed}: {decision.reason}"
        assert decision.batch == self.spark
        self.spark, self.lost, self.disk_lost = self.spark - 1, self.lost + 1, False
        self.starts, self.attempt = self.starts + 1, 0

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def calm(self) -> None:
        self.weather.clear()

    def verify(self) -> None:
        """Checks that shared storage alone has the state once everything is published."""
        self.boot()
        self._settle()
        shutil.rmtree(self.local, ignore_errors=True)
        self.boot()
        transaction = self.service.begin(self.ticket(self.batches))
        actual = self._exchange(transaction, [(f"key-{key}", 0) for key in range(13)])
        expected = {f"key-{key}": (1, 0) for key in range(13)}
        for key, (count, total) in self.models[self.batches - 1].items():
            expected[key] = (count + 1, total)
        assert actual == expected, f"seed {self.seed}: the state is {actual}, not {expected}"
        transaction.abort()
        self.service.close()

    def _settle(self) -> None:
        """Begins once, so that a leftover log is published."""
        try:
            self.service.begin(self.ticket(self.batches)).abort()
        except StateMissing:
            self.reconcile()
            self.run()
        self.jobs.drain()
        self.service.close()


def batch_of(rows: Rows) -> pa.RecordBatch:
    hashes = np.array([sum(key.encode()) % 5 << 40 for key, _ in rows], np.int64)
    keys, amounts = pa.array([key for key, _ in rows]), pa.array([amount for _, amount in rows], pa.int64())
    return pa.RecordBatch.from_arrays([pa.array(hashes), keys, amounts], schema=input_schema(SPEC))


def state_of(batches: Iterable[pa.RecordBatch]) -> State:
    rows = [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
    return {key: (count, total) for key, count, total in rows}


def simulate(seed: int) -> Simulation:
    """One simulated query; raises `AssertionError` with the seed when a check fails."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="headrace-simulation-", dir=memory if memory.is_dir() else None)
    try:
        simulation = Simulation(seed, Path(folder))
        simulation.run()
        return simulation
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Met:
    """Counts of the events in many simulations."""

    runs: int = 0
    starts: int = 0
    lost: int = 0
    failed: tuple[str, ...] = ()

    def __add__(self, other: Met) -> Met:
        failed = self.failed + other.failed
        return Met(self.runs + other.runs, self.starts + other.starts, self.lost + other.lost, failed)

    def __str__(self) -> str:
        verdict = "no violation" if not self.failed else "\n".join(["violations:", *self.failed])
        return f"{self.runs} runs, {self.starts} restarts, {self.lost} batches taken back: {verdict}"


def run_seeds(seeds: Sequence[int]) -> Met:
    """Runs the seeds one after another, without output."""
    logging.getLogger("headrace").setLevel(logging.CRITICAL)
    met = Met()
    for seed in seeds:
        try:
            run = simulate(seed)
            met += Met(1, run.starts, run.lost)
        except Exception as error:
            met += Met(1, failed=(f"seed {seed}: {error!r}",))
    return met


def run_many(count: int, first: int, workers: int) -> int:
    """Runs many seeds in several processes and prints their counts; returns the exit code."""
    clock = SystemClock()
    parts = [range(first + start, first + min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    with ProcessPoolExecutor(workers, get_context("spawn")) as processes:
        begun_ms = clock.monotonic_ms()
        met = sum(processes.map(run_seeds, parts), Met())
    minutes = (clock.monotonic_ms() - begun_ms) / 60_000
    print(f"{met}\n{met.runs / minutes:,.0f} runs a minute, in {workers} processes")
    return 1 if met.failed else 0
