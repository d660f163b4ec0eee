"""Protects windows of several slices and lateness in the RMW stores: whatever is spilled, evicted, merged
or reopened, each epoch gives out what a plain Python model of windows gives out, and nothing twice."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import ArithmeticOverflow
from headrace.plan.choice import adds
from headrace.plan.spec import (
    Accumulator,
    Emit,
    Field,
    Fold,
    OperatorSpec,
    Window,
    input_schema,
)
from headrace.store.base.files import FileKind, Sections
from headrace.store.base.share import FixedShare
from headrace.store.fold import final, panes
from headrace.store.fold.final import FinalStore
from headrace.store.fold.rmw import RmwStore
from headrace.store.rows.slices import closing, slices_of, taking, windows_left, windows_over
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.testing.contracts.store_lab import FlushedBy

Row = tuple[int, int, int]  # key, event time, amount
Given = list[tuple[str, int, int, int, int, str]]

WINDOWS = [
    Window(10),
    Window(10, 3, lateness_us=15),
    Window(10, 1, 2),
    Window(10, 0, 4),
    Window(12, 2, 3, lateness_us=7),
    Window(7, 0, 3, lateness_us=1),
    Window(60, 0, 1),
    Window(40, 1, 2, lateness_us=9),
]
SPEC = OperatorSpec(
    name="sliding",
    keys=(Field("k0", "string", "key"),),
    inputs=(Field("v0", "int64", "amount"), Field("v1", "string", "name")),
    work=Fold(
        (
            Accumulator("count", None, "int64"),
            Accumulator("sum", "v0", "int64"),
            Accumulator("max", "v1", "string"),
        )
    ),
    window=Window(10, 0, 2),
    emit="final",
    timed=True,
    delays_ms=(0,),
    partitions=1,
)


def name_of(amount: int) -> str:
    return "abc"[amount % 3] * (amount % 20)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    hashes = [(key % 5 - 2) << 61 for key, _, _ in rows]  # few hashes, far apart: keys collide
    columns = [
        pa.array(hashes, pa.int64()),
        pa.array([time for _, time, _ in rows], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([f"key-{key}" for key, _, _ in rows], pa.string()),
        pa.array([amount for _, _, amount in rows], pa.int64()),
        pa.array([name_of(amount) for _, _, amount in rows], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=input_schema(SPEC))


@dataclass
class Model:
    """All rows that were not late, and a watermark: every answer is worked out from the rows anew."""

    window: Window
    emit: Emit
    kept: list[Row] = field(default_factory=list)
    late: int = 0
    watermark: int | None = None

    def covering(self, time: int) -> list[int]:
        """The starts of the windows over a time, straight from their definition."""
        first = time - self.window.width_us
        starts = range(first + 1, time + 1)
        return [s for s in starts if (s - self.window.offset_us) % self.window.every_us == 0]

    def takes(self, start: int) -> bool:
        through = start + self.window.width_us + self.window.lateness_us
        return self.watermark is None or through > self.watermark

    def epoch(self, rows: list[Row], watermark: int | None) -> Given:
        timely = [row for row in rows if any(map(self.takes, self.covering(row[1])))]
        self.late += len(rows) - len(timely)
        self.kept += timely
        touched = {(row[0], s) for row in timely for s in self.covering(row[1]) if self.takes(s)}
        known = {(row[0], s) for row in self.kept for s in self.covering(row[1])}
        before, self.watermark = self.watermark, watermark
        if self.emit == "changes":
            return sorted(map(self.result, touched))
        closed = {at for at in known if self.ended(at[1], watermark) and not self.ended(at[1], before)}
        again = {at for at in touched if self.ended(at[1], before)}
        return sorted(map(self.result, closed | again))

    def ended(self, start: int, watermark: int | None) -> bool:
        return watermark is not None and start + self.window.width_us <= watermark

    def result(self, at: tuple[int, int]) -> tuple[str, int, int, int, int, str]:
        key, start = at
        end = start + self.window.width_us
        rows = [row for row in self.kept if row[0] == key and start <= row[1] < end]
        amounts = [amount for _, _, amount in rows]
        return f"key-{key}", start, end, len(rows), sum(amounts), max(map(name_of, amounts))


class Lab:
    """A store in a folder, which may be thrown away and opened again."""

    def __init__(
        self,
        folder: Path,
        spec: OperatorSpec,
        share: int,
        kind: type[RmwStore] | type[FinalStore] = RmwStore,
    ) -> None:
        self.folder, self.spec, self.share, self.kind = folder, spec, share, kind
        self.numbers = itertools.count()
        self.late = 0
        self.store = self.open([], None)

    def open(self, segments: list[Segment], watermark: int | None) -> RmwStore | FinalStore:
        return self.kind(self.spec, FixedShare(self.share), FlushedBy(self.flush), segments, watermark)

    def path(self) -> Path:
        return self.folder / f"{next(self.numbers)}.segment"

    def flush(self, kind: FileKind, sections: Sections) -> Segment:
        path = self.path()
        write_segment(path, kind.shape.width, sections, kind.shape.variable_words, sync=False)
        return self.opened(path)

    def opened(self, path: Path | str) -> Segment:
        layout = self.store.layout
        return SegmentFile.open(path, layout.width, layout.variable_key_words)

    def epoch(self, rows: list[Row], watermark: int | None) -> Given:
        before = self.store.late_rows
        half = len(rows) // 2
        for part in (rows[:half], rows[half:]):
            self.store.apply(batch_of(part))
        write = self.store.gather(watermark)
        given = [row for batch in self.store.results(watermark) for row in plain(batch)]
        segments = [*self.store.segments, *write()]
        self.late += self.store.late_rows - before
        live = [segment for segment in segments if self.store.is_live(segment, watermark)]
        self.store.settle(live, watermark)
        return sorted(given)

    @property
    def keys(self) -> int:
        return self.store.keys_after(self.store.watermark_us)

    def reopen(self) -> None:
        segments = [self.opened(segment.file.id) for segment in self.store.segments]
        self.store = self.open(segments, self.store.watermark_us)

    def compact(self) -> None:
        work = self.store.maintenance()
        if work is None:
            return
        path, segments = self.path(), self.store.segments
        made = [self.opened(path)] if work.write(path, threading.Event()) else []
        at = segments.index(work.inputs[0])
        segments[at : at + len(work.inputs)] = made


def plain(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    times = [pa.types.is_timestamp(column.type) for column in batch.columns]
    columns = [c.cast(pa.int64()) if t else c for c, t in zip(batch.columns, times, strict=True)]
    return zip(*(column.to_pylist() for column in columns), strict=True)


KINDS = pytest.mark.parametrize("kind", [RmwStore, FinalStore])
rows = st.lists(st.tuples(st.integers(0, 12), st.integers(-20, 20), st.integers(-9, 99)), max_size=30)
steps = st.tuples(rows, st.integers(0, 25), st.sampled_from(["", "", "reopen", "compact"]))


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    window=st.sampled_from(WINDOWS),
    emit=st.sampled_from(["final", "changes"]),
    share=st.sampled_from([1 << 9, 6 << 10, 1 << 20]),
    limit=st.sampled_from([2, 1 << 16]),
    script=st.lists(steps, min_size=1, max_size=6),
    start=st.none() | st.integers(-30, 0),
    sums=st.booleans(),
)
def test_store_equals_the_model(
    window: Window,
    emit: Emit,
    share: int,
    limit: int,
    script: list[tuple[list[Row], int, str]],
    start: int | None,
    sums: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(panes, "ROWS_MIN", limit)
        patch.setattr(final, "FOLD_ROWS", limit)
        spec = replace(SPEC, window=window, emit=emit)
        lab = Lab(Path(folder), spec, share, FinalStore if sums and adds(spec) else RmwStore)
        model, watermark, at = Model(window, emit), start, 0
        for batch, forward, then in script:
            at += forward // 2
            arrived = [(key, time + at, amount) for key, time, amount in batch]
            assert lab.epoch(arrived, watermark) == model.epoch(arrived, watermark)
            assert lab.late == model.late
            if then:
                getattr(lab, then)()
            watermark = forward - 30 if watermark is None else watermark + forward


@KINDS
def test_a_window_is_given_out_once_and_from_all_its_slices(
    tmp_path: Path, kind: type[RmwStore] | type[FinalStore]
) -> None:
    lab = Lab(tmp_path, SPEC, 1 << 20, kind)
    assert lab.epoch([(1, 0, 5), (1, 9, 1), (2, 3, 2)], 2) == [
        ("key-1", start, start + 10, 1, 5, name_of(5)) for start in (-8,)
    ]
    given = lab.epoch([], 10)
    assert ("key-1", 0, 10, 2, 6, name_of(5)) in given
    assert lab.epoch([], 10) == []
    assert lab.epoch([(1, 9, 1)], 12) == [("key-1", 2, 12, 2, 2, "b"), ("key-2", 2, 12, 1, 2, "cc")]


def test_late_rows_within_the_lateness_bring_their_groups_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(SPEC, window=Window(10, lateness_us=5)), 1 << 20)
    assert len(lab.epoch([(1, 0, 1), (2, 1, 1)], 10)) == 2
    assert lab.epoch([(1, 2, 1)], 14) == [("key-1", 0, 10, 2, 2, "b")]
    assert lab.epoch([(3, 2, 1)], 15) == [("key-3", 0, 10, 1, 1, "b")]
    assert lab.epoch([(1, 3, 1)], 15) == []
    assert lab.late == 1
    assert lab.keys == 0


@KINDS
def test_a_row_is_stored_once_however_many_windows_it_is_in(
    tmp_path: Path, kind: type[RmwStore] | type[FinalStore]
) -> None:
    lab = Lab(tmp_path, replace(SPEC, window=Window(60, 0, 1)), 1 << 20, kind)
    lab.epoch([(key, key, 1) for key in range(20)], None)
    assert lab.keys == 20
    assert sum(segment.rows for segment in lab.store.segments) == 20


@KINDS
def test_windows_share_combined_slices_until_one_changes(
    tmp_path: Path, kind: type[RmwStore] | type[FinalStore]
) -> None:
    lab = Lab(tmp_path, replace(SPEC, window=Window(32, 0, 1)), 1 << 20, kind)
    rows = [(key, time, key + time) for key in range(5) for time in range(40)]
    model = Model(Window(32, 0, 1), "final")
    assert lab.epoch(rows, 34) == model.epoch(rows, 34)
    nodes = dict(lab.store.partials.nodes)
    assert lab.store.partials.nbytes == sum(node.nbytes for node in nodes.values()) > 0
    assert lab.store.memory_bytes > lab.store.partials.nbytes
    late = [(3, 21, 7)]
    assert lab.epoch(late, 36) == model.epoch(late, 36)
    kept = [at for at, node in lab.store.partials.nodes.items() if nodes.get(at) is node]
    assert (1, 24) in kept
    assert not {(1, 20), (2, 16)} & set(kept)
    lab.store.share = FixedShare(1 << 10)
    assert lab.epoch([(1, 39, 1)], 36) == model.epoch([(1, 39, 1)], 36)
    assert lab.store.partials.nbytes == 0 == len(lab.store.partials.nodes)
    assert lab.epoch([], 38) == model.epoch([], 38)


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_and_slices_agree(window: Window) -> None:
    model = Model(window, "final")
    for time in range(-70, 70, window.slice_us):
        slice_us = time - (time - window.offset_us) % window.slice_us
        over = list(windows_over(slice_us, window))
        assert over == model.covering(slice_us)
        assert all(slice_us in slices_of(start, window) for start in over)
        assert taking([slice_us], window, None) == over
        for start in over:
            end = start + window.width_us
            assert start in closing([slice_us], window, end - 1, end)
            assert start not in closing([slice_us], window, end, end + 9)
            assert windows_left(slice_us, window, end - 1) == windows_left(slice_us, window, end) + 1
        assert windows_left(slice_us, window, None) == len(over)


def test_a_slice_that_left_memory_takes_rows_without_a_lookup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, SPEC, 1 << 9, FinalStore)
    model = Model(SPEC.window or Window(1), "final")
    monkeypatch.setattr(Segment, "answer", lambda *_: pytest.fail("a row waited for a lookup"))
    for batch in range(6):
        rows = [(key, time, key + batch) for key in range(12) for time in range(6)]
        assert lab.epoch(rows, None) == model.epoch(rows, None)
    assert lab.store.whole_tables == {}
    assert next(lab.numbers) > 12, "every epoch spilled"
    assert len(lab.store.segments) == 6, "what an epoch spilled has become one segment"
    lab.compact()
    assert lab.epoch([], 40) == model.epoch([], 40)


def test_rows_of_slices_in_memory_count_once_as_keys(tmp_path: Path) -> None:
    lab = Lab(tmp_path, SPEC, 1 << 20, FinalStore)
    for batch in range(3):
        lab.epoch([(key, 0, 1) for key in range(batch, batch + 4)], None)
        assert lab.keys == 4 + batch
    lab.reopen()
    assert lab.keys == 12, "not known without reading: a key counts once per segment"


@pytest.mark.parametrize("share", [1 << 9, 1 << 20])
def test_a_sum_that_overflows_over_epochs_fails_the_batch_that_gives_it_out(
    tmp_path: Path, share: int
) -> None:
    lab = Lab(tmp_path, SPEC, share, FinalStore)
    for _ in range(3):
        assert lab.epoch([(1, 5, 1 << 62), (2, 5, 1)], None) == []
    with pytest.raises(ArithmeticOverflow):
        lab.epoch([], 20)


def test_a_sum_that_overflows_over_what_an_epoch_spilled_fails_only_the_batch_that_gives_it_out(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, SPEC, 1 << 9, FinalStore)
    assert lab.epoch([(1, 5, 1 << 62), (1, 5, 1 << 62)], None) == []
    assert len(lab.store.segments) == 2, "they could not become one"
    with pytest.raises(ArithmeticOverflow):
        lab.epoch([], 20)


def test_spilled_rows_stay_as_they_are_where_one_window_reads_them(tmp_path: Path) -> None:
    window = Window(10)
    lab, model = Lab(tmp_path, replace(SPEC, window=window), 1 << 9, FinalStore), Model(window, "final")
    rows = [(key, 5, key) for key in range(12)] * 2
    assert lab.epoch(rows, None) == model.epoch(rows, None)
    assert len(lab.store.segments) == 2, "to write them again costs more than to read them once"
    assert lab.epoch([], 10) == model.epoch([], 10)


def test_memory_is_filled_before_it_is_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final, "FOLD_ROWS", 8)
    lab = Lab(tmp_path, SPEC, 64 << 10, FinalStore)
    lab.store.apply(batch_of([(key % 40, 5, 1) for key in range(2000)]))
    assert not lab.store.spilled, "40 keys fit, though 2,000 would not"
    assert lab.store.memory_bytes <= lab.share
