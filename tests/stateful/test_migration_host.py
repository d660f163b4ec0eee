"""Protects the move of state in a host: every batch gives what a model gives, and no file is left over.
That holds with every commit mode, with aborted attempts, and with hosts that are killed before, during and
after the move."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.blob.locations import Locations
from headrace.checkpoint.steps import unobserved
from headrace.host.state.service import PartitionService
from headrace.host.state.upkeep import Upkeep
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.plan.spec import OperatorSpec, Window
from headrace.store.adaptive.migrate import MovingStore
from headrace.store.adaptive.observe import Fit
from headrace.testing.clock import ManualClock
from headrace.testing.contracts.store_contract import LATE_SLIDE, SECOND, SESSION, SLIDE, keeping
from headrace.testing.contracts.store_model import Row, StoreModel, batch_of, rows_of
from headrace.testing.simulation.stepped_crew import SteppedExecutor, SteppedJobs, stepped_crew
from headrace.wire.contract import Ticket

ROWS = st.lists(
    st.builds(
        Row, st.integers(0, 8), st.integers(0, 20).map(lambda s: s * SECOND), st.none() | st.integers(-3, 3)
    ),
    min_size=1,
    max_size=12,
)
BATCH = st.tuples(st.just("batch"), ROWS)
LEAVE = st.tuples(st.just("leave"), st.sampled_from([True, True, False]))
STEP = st.one_of(
    BATCH,
    BATCH,
    BATCH,
    st.tuples(st.just("abort"), ROWS),
    LEAVE,
    st.tuples(st.just("drain"), st.none()),
    st.tuples(st.just("drain"), st.none()),
    st.tuples(st.just("kill"), st.none()),
)


@dataclass
class Machine:
    """One partition in a host whose background work stands still until it is drained."""

    spec: OperatorSpec
    folder: Path
    mode: CommitMode
    share_bytes: int = 64 << 20
    batches: int = 0
    attempts: int = 0
    now_us: int = 0
    jobs: SteppedJobs = field(init=False)
    service: PartitionService = field(init=False)

    def __post_init__(self) -> None:
        self.model = StoreModel(self.spec)
        self.kill()

    def kill(self) -> None:
        """Another host takes over, with the same local directory."""
        self.jobs = SteppedJobs(random.Random(1))
        crew = stepped_crew(self.jobs, ManualClock(), unobserved)
        upkeep = Upkeep(SteppedExecutor(self.jobs))
        self.service = PartitionService(
            1, Locations(self.folder / "local"), crew, upkeep, share_min=self.share_bytes
        )

    @property
    def store(self) -> MovingStore | None:
        current = next((partition.store for partition in self.service.partitions), None)
        return current if isinstance(current, MovingStore) else None

    def leave(self, by_time: bool) -> None:
        store, window = self.store, self.spec.window
        if store is not None and window is not None and store.stored_as == "memory" and not store.is_moving:
            own = "aur" if window.session else "aar"
            store.leave_memory(Fit("range" if by_time and not window.session else own, "so"))  # type: ignore[arg-type]

    def batch(self, rows: list[Row], *, commit: bool = True) -> str:
        """Run a batch beside the model; whose files its version has."""
        self.attempts += 1
        where, base = str(self.folder / "shared"), self.batches - 1 if self.batches else None
        ticket = Ticket("start", "q", self.spec, 0, self.batches, base, self.attempts, where, 3, self.mode)
        transaction = self.service.begin(ticket)
        rows = [replace(row, time_us=self.now_us + row.time_us) for row in rows]
        transaction.apply(batch_of(self.spec, rows))
        seen_us = max(self.now_us, *(row.time_us - 9 * SECOND for row in rows))
        results = rows_of(transaction.finish([seen_us // 1000]))
        if not commit:
            transaction.abort()
            return ""
        summary = transaction.commit()
        assert results == self.model.epoch(rows, seen_us)
        self.now_us, self.batches = seen_us, self.batches + 1
        return summary.store


@pytest.mark.parametrize("mode", COMMIT_MODES)
@settings(max_examples=40, deadline=None)
@given(
    window=st.sampled_from([SLIDE, LATE_SLIDE, SESSION]),
    share=st.sampled_from([3000, 64 << 20]),
    begin=st.tuples(BATCH, LEAVE, BATCH).map(list) | st.just([]),
    steps=st.lists(STEP, min_size=6, max_size=16),
)
def test_a_host_moves_state_whatever_happens(
    mode: CommitMode, window: Window, share: int, begin: list[Any], steps: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(replace(keeping(window), store="auto"), Path(folder), mode, share)
        for step, argument in [*begin, *steps, ("batch", [Row(1, 200 * SECOND, 1)])]:
            if step == "batch":
                machine.batch(argument)
            elif step == "abort":
                machine.batch(argument, commit=False)
            elif step == "leave":
                machine.leave(argument)
            elif step == "drain":
                machine.jobs.drain()
            else:
                machine.kill()


@pytest.mark.parametrize("mode", COMMIT_MODES)
def test_the_version_names_the_layout_and_a_killed_move_begins_again(
    mode: CommitMode, tmp_path: Path
) -> None:
    machine = Machine(replace(keeping(SLIDE), store="auto"), tmp_path, mode)
    rows = [Row(key, key % 9 * SECOND, key) for key in range(60)]

    def settled() -> str:
        store = machine.batch(rows)
        machine.jobs.drain()
        return store

    assert settled() == "memory"
    machine.leave(by_time=True)
    assert machine.batch(rows) == "memory"
    machine.kill()  # in the middle of the move
    assert settled() == "memory"
    machine.leave(by_time=True)
    assert settled() == "memory"
    machine.batch(rows, commit=False)  # the batch of the switch
    assert settled() == "memory", "its store is gone, and what it had moved"
    machine.leave(by_time=True)
    assert [settled(), settled()] == ["memory", "range"]
    machine.kill()
    assert settled() == "range"
    for _ in range(9):
        assert settled() == "range"
    files = {path for path in tmp_path.rglob("*") if path.is_file() and path.name.startswith(".")}
    assert not {path for path in files if "segment" in path.name or "compaction" in path.name}
