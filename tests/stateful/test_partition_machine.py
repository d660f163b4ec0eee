"""Protects versions of a partition.

Whatever is aborted, fenced, replayed, spilled, evicted, compacted or reopened, the next batch starts from
exactly the committed state before it, and results equal a plain dict.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.blob.locations import Locations
from headrace.errors import Fenced
from headrace.host.state.service import PartitionService
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.plan.spec import (
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    Window,
    input_schema,
)
from headrace.wire.contract import Ticket

WIDTH_US = 10_000_000
RETAIN = 3  # versions
Rows = list[tuple[int, int, int]]  # key, event time in seconds, amount

rows_strategy = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 60), st.integers(-5, 5)), min_size=0, max_size=60
)


TUMBLING = Window(WIDTH_US)
SLIDING = Window(WIDTH_US, 1_000_000, 4_000_000, lateness_us=3_000_000)


def spec_of(window: Window | None, emit: str) -> OperatorSpec:
    return OperatorSpec(
        name="sums",
        keys=(Field("k0", "string", "key"),),
        inputs=(Field("v0", "int64", "amount"),),
        work=Fold(
            (
                Accumulator("count", None, "int64"),
                Accumulator("sum", "v0", "int64"),
                Accumulator("max", "v0", "int64"),
            )
        ),
        window=window,
        emit=emit,
        timed=window is not None,
        delays_ms=(5_000,) if window else (),
        partitions=1,
    )


def batch_of(spec: OperatorSpec, rows: Rows) -> pa.RecordBatch:
    keys, times, amounts = ([row[i] for row in rows] for i in range(3))
    hashes = (np.array(keys, np.int64) % 7) << 40  # few hashes: most keys collide with some other
    columns = [pa.array(hashes, pa.int64())]
    if spec.timed:
        columns.append(
            pa.array([t * 1_000_000 for t in times], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        )
    columns += [pa.array([f"key-{k}" * 3 for k in keys], pa.string()), pa.array(amounts, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=input_schema(spec))


class Model:
    """What the state must be: a dict per (key, start of a window), and a watermark."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self.state: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.slices: set[tuple[int, int]] = set()  # what is stored: a row per key and slice
        self.frontier_s: int | None = None

    def copy(self) -> Model:
        twin = Model(self.spec)
        twin.state, twin.slices, twin.frontier_s = dict(self.state), set(self.slices), self.frontier_s
        return twin

    @property
    def watermark_s(self) -> int | None:
        return None if self.frontier_s is None else self.frontier_s - 5

    def run(self, rows: Rows) -> list[tuple[object, ...]]:
        """Fold a batch in; the results it must give, sorted."""
        touched, before = set(), self.watermark_s
        for key, time_s, amount in rows:
            for start_s in filter(self._takes, self._windows(time_s)):
                count, total, top = self.state.get((key, start_s), (0, 0, amount))
                self.state[key, start_s] = (count + 1, total + amount, max(top, amount))
                touched.add((key, start_s))
            self.slices.add((key, self._slice(time_s)))
        if self.spec.window and rows:
            seen = max(time_s for _, time_s, _ in rows)
            self.frontier_s = seen if self.frontier_s is None else max(self.frontier_s, seen)
        closed = {at for at in self.state if self._ended(at[1], self.watermark_s)}
        again = {at for at in closed if not self._ended(at[1], before) or at in touched}
        results = sorted(map(self._result, touched if self.spec.emit == "changes" else again))
        self.state = {at: values for at, values in self.state.items() if self._takes(at[1])}
        self.slices = {at for at in self.slices if any(map(self._takes, self._windows(at[1])))}
        return results

    def _windows(self, time_s: int) -> list[int]:
        """The starts of the windows over a time, from their definition."""
        window = self.spec.window
        if window is None:
            return [0]
        offset, every = window.offset_us // 1_000_000, window.every_us // 1_000_000
        return [start for start in range(time_s - 9, time_s + 1) if (start - offset) % every == 0]

    def _slice(self, time_s: int) -> int:
        window = self.spec.window
        if window is None:
            return 0
        return time_s - (time_s - window.offset_us // 1_000_000) % (window.slice_us // 1_000_000)

    def _takes(self, start_s: int) -> bool:
        lateness = 0 if self.spec.window is None else self.spec.window.lateness_us // 1_000_000
        return not self._ended(start_s + lateness, self.watermark_s)

    def _ended(self, start_s: int, watermark_s: int | None) -> bool:
        return self.spec.window is not None and watermark_s is not None and start_s + 10 <= watermark_s

    def _result(self, at: tuple[int, int]) -> tuple[object, ...]:
        key, start_s = at
        bounds = (start_s * 1_000_000, start_s * 1_000_000 + WIDTH_US) if self.spec.window else ()
        return (f"key-{key}" * 3, *bounds, *self.state[at])


def results_of(batches: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    rows = []
    for batch in batches:
        timed = [pa.types.is_timestamp(column.type) for column in batch.columns]
        columns = [c.cast(pa.int64()) if t else c for c, t in zip(batch.columns, timed, strict=True)]
        rows += zip(*(column.to_pylist() for column in columns), strict=True)
    return sorted(rows)


class PartitionMachine(RuleBasedStateMachine):
    """One partition under a driver that replays, a host that dies, and too little memory."""

    @initialize(
        window=st.sampled_from([None, TUMBLING, SLIDING]),
        changes=st.booleans(),
        tiny=st.booleans(),
        mode=st.sampled_from(COMMIT_MODES),
    )
    def begin(self, window: Window | None, changes: bool, tiny: bool, mode: CommitMode) -> None:
        self.mode, self.local = mode, Path(tempfile.mkdtemp(prefix="headrace-machine-"))
        self.folder = tempfile.mkdtemp(prefix="headrace-machine-")
        self.spec = spec_of(window, "changes" if changes or not window else "final")
        self.memory = 1 if tiny else 64 << 20
        self.committed = {-1: Model(self.spec)}
        self.batch, self.newest, self.attempt, self.application = 0, 0, 0, 0
        self.ghosts: list[PartitionService] = []
        self.service = self._service()

    def _service(self) -> PartitionService:
        # The smallest share that the budget hands out is a megabyte: far more than these rows need.
        share_min = 4096 if self.memory == 1 else 1 << 20
        return PartitionService(self.memory, Locations(self.local), share_min=share_min)

    def _ticket(self, batch: int) -> Ticket:
        self.attempt += 1
        base = batch - 1 if batch else None
        name = f"app-{self.application}"
        place = (name, "query", self.spec, 0, batch, base, self.attempt, self.folder)
        return Ticket(*place, RETAIN, self.mode)

    def _seen(self, rows: Rows) -> list[int | None]:
        if not self.spec.delays_ms:
            return []
        return [max((time_s * 1000 for _, time_s, _ in rows), default=None)]

    def _apply(self, transaction: object, rows: Rows) -> None:
        half = len(rows) // 2
        for part in (rows[:half], rows[half:]):
            transaction.apply(batch_of(self.spec, part))
            transaction.fold()

    @rule(rows=rows_strategy)
    def commit(self, rows: Rows) -> None:
        transaction = self.service.begin(self._ticket(self.batch))
        model = self.committed[self.batch - 1].copy()
        self._apply(transaction, rows)
        assert results_of(list(transaction.finish(self._seen(rows)))) == model.run(rows)
        summary = transaction.commit()
        assert summary.version == self.batch
        self.committed[self.batch] = model
        self.batch += 1
        self.newest = max(self.newest, self.batch)

    @rule(rows=rows_strategy, sealed=st.booleans())
    def abort(self, rows: Rows, sealed: bool) -> None:
        transaction = self.service.begin(self._ticket(self.batch))
        self._apply(transaction, rows)
        if sealed:
            list(transaction.finish(self._seen(rows)))
        transaction.abort()

    @precondition(lambda self: self.batch > max(0, self.newest - RETAIN))
    @rule()
    def replay(self) -> None:
        """Spark did not log the last batch: it comes again, and starts where it started before.

        It may go back further, as far as versions are retained.
        """
        self.batch -= 1

    @rule(rows=rows_strategy)
    def zombie(self, rows: Rows) -> None:
        """An older attempt goes on after a newer one has begun."""
        older = self.service.begin(self._ticket(self.batch))
        self._apply(older, rows)
        newer = self.service.begin(self._ticket(self.batch))
        with pytest.raises(Fenced):
            older.commit()
        older.abort()
        newer.abort()

    @rule(rows=rows_strategy, graceful=st.booleans(), restarted=st.booleans())
    def die(self, rows: Rows, graceful: bool, restarted: bool) -> None:
        """The host dies with a transaction open; Spark may or may not be restarted too."""
        self._apply(self.service.begin(self._ticket(self.batch)), rows)
        if graceful:
            self.service.close()
        else:
            self.ghosts.append(
                self.service
            )  # its threads go on, as those of a host on another machine would
        self.application += restarted
        self.attempt = 0 if restarted else self.attempt
        self.service = self._service()

    @rule(mode=st.sampled_from(COMMIT_MODES))
    def change_mode(self, mode: CommitMode) -> None:
        """A query may be started again with another way to commit."""
        self.mode = mode

    @invariant()
    def keys_are_counted(self) -> None:
        if not hasattr(self, "service") or self.spec.window:
            return
        for partition in self.service.status()["partitions"]:
            if partition["version"] == self.batch - 1:
                assert partition["keys"] == len(self.committed[self.batch - 1].slices)

    def teardown(self) -> None:
        if hasattr(self, "service"):
            for service in (*self.ghosts, self.service):
                service.close()
            shutil.rmtree(self.folder)
            shutil.rmtree(self.local)


PartitionMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPartition = PartitionMachine.TestCase


def test_a_host_outlives_its_segment_numbers(tmp_path) -> None:
    """Names have six digits for the sequence; a host that has written a million segments goes on."""
    spec, service = spec_of(None, "changes"), PartitionService(64 << 20)
    for number in range(3):
        base = number - 1 if number else None
        ticket = Ticket("start", "q", spec, 0, number, base, number + 1, str(tmp_path), 3)
        transaction = service.begin(ticket)
        if number == 0:
            (partition,) = service.partitions
            object.__setattr__(partition.home, "sequence", itertools.count(999_999))
        transaction.apply(batch_of(spec, [(1, 0, 1)]))
        assert results_of(list(transaction.finish([])))[0][1] == number + 1
        transaction.commit()
    service.close()
    written = sorted(path.name[-14:-8] for path in tmp_path.glob("**/*.segment"))
    assert written == ["000000", "000001", "999999"]


def test_a_batch_larger_than_a_block_is_folded_in_parts(tmp_path, monkeypatch) -> None:
    """Spark may be told to send very large batches; a store makes room for one part of them at a time."""
    monkeypatch.setattr("headrace.host.state.transaction.APPLY_ROWS", 8)
    spec, service, sizes = spec_of(None, "changes"), PartitionService(64 << 20), []
    transaction = service.begin(Ticket("start", "q", spec, 0, 0, None, 1, str(tmp_path), 3))
    apply = transaction.store.apply
    monkeypatch.setattr(transaction.store, "apply", lambda rows: sizes.append(rows.num_rows) or apply(rows))
    rows = [(key % 11, 0, key) for key in range(101)]
    transaction.apply(batch_of(spec, rows))
    assert results_of(list(transaction.finish([]))) == Model(spec).run(rows)
    assert sum(sizes) == len(rows)
    assert max(sizes) < 16
    transaction.commit()
    service.close()


def test_forty_batches_are_compacted_and_collected(tmp_path) -> None:
    """Small segments are merged beside the batches, old versions go, and the state stays right."""
    spec, service = spec_of(None, "changes"), PartitionService(64 << 20)
    model: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for number in range(40):
        ticket = Ticket(
            "start", "query", spec, 0, number, number - 1 if number else None, number + 1, str(tmp_path), 3
        )
        transaction = service.begin(ticket)
        rows = [(key, 0, number) for key in range(number, number + 30)]
        transaction.apply(batch_of(spec, rows))
        list(transaction.finish([]))
        transaction.commit()
        for key, _, amount in rows:
            model[key][0] += 1
            model[key][1] += amount
    status = service.status()["partitions"][0]
    service.close()
    manifests = list(tmp_path.glob("**/*.manifest"))
    segments = list(tmp_path.glob("**/*.segment"))
    assert status["segments"] < 20
    assert len(manifests) < 20
    assert len(segments) < 40
    again = PartitionService(64 << 20)
    transaction = again.begin(Ticket("start", "query", spec, 0, 40, 39, 100, str(tmp_path), 3))
    transaction.apply(batch_of(spec, [(key, 0, 0) for key in model]))
    results = results_of(list(transaction.finish([])))
    wanted = sorted((f"key-{key}" * 3, count + 1, total) for key, (count, total) in model.items())
    assert [row[:3] for row in results] == wanted
    transaction.abort()
    again.close()


def test_applications_of_one_batch_each_do_not_pile_up_segments(tmp_path) -> None:
    """A scheduled query runs one batch and leaves; nobody waits for its compactions, so a start does."""
    spec = spec_of(None, "changes")
    for number in range(60):
        service = PartitionService(64 << 20)
        base = number - 1 if number else None
        transaction = service.begin(Ticket(f"s{number}", "q", spec, 0, number, base, 1, str(tmp_path), 3))
        transaction.apply(batch_of(spec, [(number, 0, 1), (7, 0, 1)]))
        results = results_of(list(transaction.finish([])))
        assert ("key-7" * 3, number + 1 + (number >= 7), number + 1 + (number >= 7), 1) in results
        transaction.commit()
        segments = service.status()["partitions"][0]["segments"]
        service.close()
    assert segments <= 30
    assert len(list(tmp_path.glob("**/*.segment"))) < 55
    assert not list(tmp_path.glob("**/.tmp-*"))
