"""Protects a change of the number of partitions: whatever numbers follow each other, in every store and
commit mode, with hosts killed and attempts aborted, every batch gives what a model without partitions does.
A change writes no segment, and adds up running totals once."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.blob.locations import Locations
from headrace.checkpoint.records import OperatorRecord
from headrace.checkpoint.restore import read_manifest
from headrace.checkpoint.steps import unobserved
from headrace.errors import OperatorChanged, StateMissing
from headrace.format.names import parse_segment
from headrace.host.state.service import PartitionService
from headrace.host.state.upkeep import Upkeep
from headrace.inspect.versions import published
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.plan.partitions.groups import partition_of
from headrace.plan.partitions.layouts import Origin
from headrace.plan.spec import HASH, OperatorSpec
from headrace.recovery.redo import StateOf, redo
from headrace.testing.clock import ManualClock
from headrace.testing.contracts.store_contract import (
    LATE_SESSION,
    LATE_SLIDE,
    SECOND,
    SESSION,
    SLIDE,
    TUMBLE,
    folding,
    keeping,
)
from headrace.testing.contracts.store_model import Row, StoreModel, batch_of, rows_of
from headrace.testing.simulation.stepped_crew import SteppedExecutor, SteppedJobs, stepped_crew
from headrace.wire.contract import Ticket

SPECS: dict[str, OperatorSpec] = {
    "running": folding(None, "changes"),
    "tumbling": folding(TUMBLE, "changes"),
    "final": folding(LATE_SLIDE, "final"),
    "sessions": folding(LATE_SESSION, "final"),
    "kept": keeping(SLIDE),
    "late": keeping(LATE_SLIDE),
    "by_time": replace(keeping(SLIDE), store="range"),
    "session_rows": keeping(SESSION),
    "memory": replace(folding(SESSION, "final"), store="memory"),
}
ROWS = st.lists(
    st.builds(
        Row,
        st.integers(0, 40),
        st.integers(0, 20).map(lambda s: s * SECOND),
        st.none() | st.integers(-3, 3),
    ),
    min_size=1,
    max_size=15,
)
BATCH = st.tuples(st.just("batch"), ROWS)
STEP = st.one_of(
    BATCH,
    BATCH,
    st.tuples(st.just("rescale"), st.integers(1, 9)),
    st.tuples(st.just("abort"), ROWS),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("drain"), st.none()),
)


@dataclass
class Machine:
    """A query over several partitions, its record, and a host whose background work stands still."""

    spec: OperatorSpec
    folder: Path
    mode: CommitMode
    share_bytes: int = 64 << 20
    query: str = "q"
    batches: int = 0
    attempts: int = 0
    starts: int = 0
    now_us: int = 0
    jobs: SteppedJobs = field(init=False)
    service: PartitionService = field(init=False)

    def __post_init__(self) -> None:
        self.model = StoreModel(self.spec)
        self.record = OperatorRecord(str(self.folder / "shared"), self.spec, ())
        self.kill()

    def kill(self) -> None:
        """Another host takes over, with the same local directory."""
        self.jobs = SteppedJobs(random.Random(1))
        crew = stepped_crew(self.jobs, ManualClock(), unobserved)
        upkeep, local = Upkeep(SteppedExecutor(self.jobs)), Locations(self.folder / "local")
        self.service = PartitionService(1, local, crew, upkeep, share_min=self.share_bytes)

    def drain(self) -> None:
        while self.jobs.step():
            pass

    def rescale(self, partitions: int) -> None:
        """A new start; what hosts left in the log is published first, as `hr.start` does."""
        self.starts += 1
        state = StateOf(self.record.location, self.query, self.spec.name, self.record.known_layouts)
        for version in self.record.begun[-2:]:
            if Path(self.record.location).exists():
                redo(self.folder / "local", state, version)
        spec = replace(self.spec, partitions=partitions)
        self.record = replace(self.record, spec=spec, layouts=self.record.known_layouts)
        self.record = self.record.with_partitions(self.batches)

    def tickets(self) -> list[Ticket]:
        self.attempts += 1
        record, number = self.record, self.batches
        base = None if not self.batches else self.batches - 1
        self.record = record.began(number)
        origin = record.origin(number)
        wire = None if origin is None else asdict(origin)
        start = (f"start-{self.starts}", self.query, record.spec)
        rest = (number, base, self.attempts, record.location, 3, self.mode)
        return [
            Ticket(*start, partition, *rest, by_range=record.by_range, origin=Origin.of(wire))
            for partition in range(record.spec.partitions)
        ]

    def batch(self, rows: list[Row], *, commit: bool = True) -> None:
        rows = [replace(row, time_us=self.now_us + row.time_us) for row in rows]
        seen_us = max(self.now_us, *(row.time_us - 9 * SECOND for row in rows))
        results: list[Any] = []
        begun = [self.service.begin(ticket) for ticket in self.tickets()]
        parts = split(spread(self.spec, rows), len(begun))
        for transaction, part in zip(begun, parts, strict=True):
            if part.num_rows:
                transaction.apply(part)
            results += rows_of(transaction.finish([seen_us // 1000] * len(self.spec.delays_ms)))
        for transaction in begun:
            transaction.commit() if commit else transaction.abort()
        if not commit:
            return
        expected = self.model.epoch(rows, seen_us if self.spec.delays_ms else None)
        assert Counter(map(repr, results)) == Counter(map(repr, expected))
        self.now_us, self.batches = seen_us, self.batches + 1

    def late_rows(self) -> int:
        """The late rows of all partitions since the first batch."""
        blobs = Locations(self.folder / "local").open(self.record.location, create=False)
        layouts, version = self.record.known_layouts, self.batches - 1
        names = published(blobs, self.query, self.spec.name, layouts)[version]
        return sum(read_manifest(blobs, name).late_rows_total for name in names)

    def segments(self) -> set[str]:
        shared = self.folder / "shared"
        return {str(path) for path in shared.rglob("*.segment") if parse_segment(path.name)}


def spread(spec: OperatorSpec, rows: list[Row]) -> pa.RecordBatch:
    """The rows with hashes over all groups; few, so that different keys share them."""
    batch = batch_of(spec, rows)
    few = np.array([row.key % 31 for row in rows], np.uint64)
    hashes = (few * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return batch.set_column(batch.schema.get_field_index(HASH), HASH, pa.array(hashes))


def split(batch: pa.RecordBatch, partitions: int) -> list[pa.RecordBatch]:
    owners = [partition_of(hashed, partitions) for hashed in batch.column(HASH).to_pylist()]
    return [batch.filter(pa.array([owner == number for owner in owners])) for number in range(partitions)]


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=10, deadline=None)
@given(
    mode=st.sampled_from(COMMIT_MODES),
    share=st.sampled_from([3000, 64 << 20]),
    first=st.integers(1, 6),
    steps=st.lists(STEP, min_size=4, max_size=10),
)
def test_any_numbers_of_partitions_give_the_same_results(
    name: str, mode: CommitMode, share: int, first: int, steps: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        share = 64 << 20 if name == "memory" else share  # it never spills
        machine = Machine(replace(SPECS[name], partitions=first), Path(folder), mode, share)
        for step, what in steps:
            if step == "batch":
                machine.batch(what)
            elif step == "abort":
                machine.batch(what, commit=False)
            elif step == "rescale":
                machine.rescale(what)
            else:
                getattr(machine, step)()
        machine.drain()
        machine.rescale(3)
        machine.batch([Row(key, 0, 1) for key in range(41)])
        machine.batch([Row(0, 200 * SECOND, 1)])


def drawn(draw: random.Random) -> Row:
    return Row(draw.randint(0, 60), draw.randint(0, 20) * SECOND, draw.randint(-9, 9))


@pytest.mark.parametrize("name", SPECS)
def test_three_five_seven_two_one(name: str, tmp_path: Path) -> None:
    machine = Machine(replace(SPECS[name], partitions=3), tmp_path, "sync")
    draw = random.Random(7)
    for partitions in (3, 5, 7, 2, 1, 4, 3):
        machine.rescale(partitions)
        for _ in range(3):
            machine.batch([drawn(draw) for _ in range(80)])
            machine.drain()
    assert machine.late_rows() == machine.model.late_rows


@pytest.mark.parametrize("name", SPECS)
def test_partitions_without_a_row(name: str, tmp_path: Path) -> None:
    """Of few keys most partitions have none, though their hashes lie between those of a shared file."""
    machine = Machine(replace(SPECS[name], partitions=1), tmp_path, "sync")
    for partitions in (1, 9, 4, 16, 2):
        machine.rescale(partitions)
        for number in range(6):
            machine.batch([Row(key, number * SECOND, key) for key in (1, 2, 3)])
            machine.drain()


def test_a_change_writes_no_segment(tmp_path: Path) -> None:
    machine = Machine(replace(SPECS["running"], partitions=4), tmp_path, "sync")
    machine.batch([Row(key, 0, 1) for key in range(41)])
    before = machine.segments()
    machine.rescale(8)
    begun = [machine.service.begin(ticket) for ticket in machine.tickets()]
    assert machine.segments() == before
    for transaction in begun:
        transaction.abort()
    assert machine.segments() == before
    machine.rescale(4)  # the change never committed, so the old number works
    machine.batch([Row(key, 0, 1) for key in range(41)])


def test_a_base_that_is_only_in_a_log_is_refused(tmp_path: Path) -> None:
    machine = Machine(replace(SPECS["running"], partitions=2), tmp_path, "async")
    machine.batch([Row(key, 0, 1) for key in range(41)])
    machine.kill()  # before anything is published
    spec = replace(machine.spec, partitions=4)
    machine.record = replace(machine.record, spec=spec, layouts=machine.record.known_layouts)
    machine.record = machine.record.with_partitions(machine.batches)
    with pytest.raises(StateMissing, match=r"cannot change.*not on shared storage for 2 of 2") as refused:
        machine.service.begin(machine.tickets()[0])
    assert "spark.headrace.partitions=2" in refused.value.hint
    assert not machine.segments()
    machine.record = replace(machine.record, begun=(0,))
    machine.rescale(2)
    machine.batch([Row(key, 0, 1) for key in range(41)])


def test_a_start_that_was_overtaken_does_no_harm(tmp_path: Path) -> None:
    """An attempt of the old start publishes the base once more, and the batch after it, too late."""
    machine = Machine(replace(SPECS["running"], partitions=2), tmp_path, "sync")
    machine.batch([Row(key, 0, 1) for key in range(41)])
    zombie = Machine(machine.spec, tmp_path, "sync")
    zombie.record, zombie.batches, zombie.model = machine.record, machine.batches, machine.model.copy()
    late = [zombie.service.begin(ticket) for ticket in zombie.tickets()]
    machine.rescale(4)
    machine.batch([Row(key, 0, 2) for key in range(41)])
    for transaction in late:
        list(transaction.finish([]))
        transaction.guard = None  # its look at the runs came just before the new start
        transaction.commit()
    machine.batch([Row(key, 0, 3) for key in range(41)])
    machine.rescale(2)
    machine.batch([Row(key, 0, 4) for key in range(41)])


def test_rocksdb_is_refused_by_name(tmp_path: Path) -> None:
    machine = Machine(replace(SPECS["running"], partitions=2, store="rocksdb"), tmp_path, "sync")
    machine.batch([Row(key, 0, 1) for key in range(41)])
    machine.rescale(3)
    with pytest.raises(OperatorChanged, match="rocksdb"):
        machine.service.begin(machine.tickets()[0])
