"""A seeded simulation of commits: one partition, a driver like Spark, storage that fails, hosts that die.

One seed is one run: a few batches in one of the commit modes, with faults drawn from the seed: requests
that are applied or not and reported or not, that are slow, or late and out of order (`testing/weather.py`),
background jobs in any order, also while others wait for storage, a death at any moment of the pipeline or
at any request, steps that seem to stand still, a driver that forgets a batch, a local disk that is full or
lost. No Spark, no threads, no clock.

What must hold: every batch gives what a plain dict gives; what a version holds never changes once it was
published; a batch is lost only with the local disk, then only the last one, and `decide` takes back just
that one; and at the end the state on shared storage alone is the model's.
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
from headrace.checkpoint.reconcile import OperatorFound, decide, versions_wanted
from headrace.clock import SystemClock
from headrace.errors import ReadBack, StateMissing, TryAgain
from headrace.host.contract import Ticket
from headrace.host.redo import StateOf, missing
from headrace.host.service import PartitionService
from headrace.host.upkeep import Upkeep
from headrace.options import COMMIT_MODES, CommitMode
from headrace.spec import Accumulator, Field, OperatorSpec, input_schema
from headrace.testing.clock import ManualClock
from headrace.testing.faulty_blobs import FaultyBlobs
from headrace.testing.simulated_storage import SimulatedLocations, SimulatedStorage
from headrace.testing.stepped_crew import Crash, SteppedExecutor, SteppedJobs, stepped_crew
from headrace.testing.weather import STALL_MS, Climate, Weather

QUERY = "query"
ATTEMPTS_MAX = 60
CHUNK = 100  # seeds that a process runs at a time
SPEC = OperatorSpec(
    name="sums",
    keys=(Field("k0", "string", "key"),),
    inputs=(Field("v0", "int64", "amount"),),
    accumulators=(Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64")),
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
    """One run."""

    seed: int
    folder: Path
    randomness: random.Random = field(init=False)
    spark: int = -1  # the last batch in Spark's commit log
    begun: list[int] = field(default_factory=list)
    attempt: int = 0
    attempts: dict[int, int] = field(default_factory=dict)  # the newest at each batch of this start
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
        """A new host; the one before it is dead, and its jobs with it."""
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
        """Another job runs while one waits for storage, unless it might need what that one holds."""
        held = any(partition.mutex.locked() for partition in self.service._partitions.values())
        return not held and self.jobs.step()

    def _look(self) -> None:
        for partition in self.service._partitions.values():
            partition.pipeline.look()

    def trouble(self) -> None:
        """What may happen between two batches."""
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
        if self.randomness.random() < 0.5:  # the driver died too
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
        if self.randomness.random() > 0.1:  # else Spark dies before it logs the commit, and replays
            self.spark, self.disk_lost = number, False

    def ticket(self, number: int) -> Ticket:
        self.attempt += 1
        self.attempts[number] = self.attempt
        base = max((batch for batch in self.begun if batch < number), default=None)
        known = None if base is None else self.attempts.get(base)
        start, where = f"start-{self.starts}", self.storage.root
        return Ticket(start, QUERY, SPEC, 0, number, base, self.attempt, where, 3, self.mode, known)

    def _exchange(self, transaction: Any, rows: Rows) -> State:
        if rows:
            transaction.apply(batch_of(rows))
        return state_of(transaction.finish([]))

    def reconcile(self) -> None:
        """A version is missing: that must be the lost disk, and one batch."""
        assert self.disk_lost, f"seed {self.seed}: version {self.spark} is gone, and no disk was lost"
        state = StateOf(self.storage.root, QUERY, SPEC.name, 1)
        wanted = versions_wanted(self.begun, self.spark)
        gone = {version: missing(self.storage, state, version) for version in wanted}
        decision = decide(self.spark, [self.spark + 1], [OperatorFound(SPEC.name, tuple(self.begun), gone)])
        assert decision.action == "withdraw", f"seed {self.seed}: {decision.reason}"
        assert decision.batch == self.spark
        self.spark, self.lost, self.disk_lost = self.spark - 1, self.lost + 1, False
        self.starts, self.attempt = self.starts + 1, 0

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def calm(self) -> None:
        self.weather.clear()

    def verify(self) -> None:
        """With everything published, shared storage alone has the state."""
        self.boot()
        self._settle()
        shutil.rmtree(self.local, ignore_errors=True)
        self.boot()
        transaction = self.service.begin(self.ticket(self.batches))
        found = self._exchange(transaction, [(f"key-{key}", 0) for key in range(13)])
        expected = {f"key-{key}": (1, 0) for key in range(13)}
        for key, (count, total) in self.models[self.batches - 1].items():
            expected[key] = (count + 1, total)
        assert found == expected, f"seed {self.seed}: the state is {found}, not {expected}"
        transaction.abort()
        self.service.close()

    def _settle(self) -> None:
        """Begin once, so that a log that was left behind is published."""
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
    """One run; raises `AssertionError` with the seed when something does not hold."""
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
    """What many runs met."""

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
    """Run them one after another, quietly."""
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
    """Run many seeds in several processes and say what they met; the exit code."""
    clock = SystemClock()
    parts = [range(first + start, first + min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    with ProcessPoolExecutor(workers, get_context("spawn")) as processes:
        begun_ms = clock.monotonic_ms()
        met = sum(processes.map(run_seeds, parts), Met())
    minutes = (clock.monotonic_ms() - begun_ms) / 60_000
    print(f"{met}\n{met.runs / minutes:,.0f} runs a minute, in {workers} processes")
    return 1 if met.failed else 0
