"""Protects joins without a window: over epochs, late rows, crashes and tiny memory, every kind of join
gives the rows of its definition, each in its epoch and once. Rows that no later row needs are dropped."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs_model import BOUNDS, HOWS, LESS, LookingBack, Model, Out, Row, batch_of, epochs, run, spec_of

from headrace.plan.spec import ALONE, LEFT, RIGHT, Field, OperatorSpec, input_schema
from headrace.plan.work.joins.condition import Term
from headrace.plan.work.joins.stream_join import Matching, Meets, StreamJoin
from headrace.store.append import bucket_store
from headrace.store.append import buckets as kept_buckets
from headrace.testing.contracts.store_lab import StoreLab


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("share", [64 << 20, 2 << 10])
@settings(max_examples=40, deadline=None)
@given(epochs, st.sampled_from(BOUNDS), st.sampled_from([None, LESS]))
def test_a_join_is_its_definition(
    how: Matching, share: int, drawn: list[tuple[list[Row], int, str]], bounds: Any, where: Term | None
) -> None:
    """With a condition over both texts, or without."""
    if bounds[0] is None and how in ("left", "right", "full", "anti"):
        bounds = (-20, 20)
    spec = spec_of(how, *bounds, where=where)
    assert isinstance(spec.work, StreamJoin)
    with tempfile.TemporaryDirectory() as folder:
        lab, model, watermark = StoreLab(spec, Path(folder), share), Model(spec.work), 0
        for listed, moved, end in drawn:
            watermark += moved
            timely = [row for row in listed if row[0] is not None or spec.work.keeps_alone(row[1])]
            if end == "crash":
                run(lab, timely, watermark, commit=False)
                lab.reopen()
            assert run(lab, timely, watermark, commit=True) == model.epoch(timely, watermark)
            if end == "reopen":
                lab.reopen()


@pytest.mark.parametrize(
    ("how", "meets"), [*((how, "both") for how in HOWS), ("left", "arrival"), ("inner", "settled")]
)
def test_state_is_bounded(
    tmp_path: Path, how: Matching, meets: Meets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come at a steady rate: ten times as many intervals later the state is as large."""
    monkeypatch.setattr(kept_buckets, "FILE_BYTES", 0)
    spec, sizes = spec_of(how, -20 if meets == "both" else 0, 20, meets), []
    spec = replace(spec, work=replace(spec.work, bucket_us=5))  # type: ignore[type-var]
    lab = StoreLab(spec, tmp_path)
    for step in range(220):
        listed: list[Row] = [(key, side, step * 10, "x" * 20) for key in range(4) for side in (LEFT, RIGHT)]
        run(lab, listed, step * 10 - 5, commit=True)
        while lab.compact():
            pass
        assert lab.manifest is not None
        sizes.append((lab.manifest.keys, lab.manifest.state_bytes))
    (rows_early, bytes_early), (rows_late, bytes_late) = sizes[20], sizes[-1]
    assert rows_late <= 1.2 * rows_early
    assert bytes_late <= 1.2 * bytes_early


def test_compacted_rows_still_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of many small files are put together without a change of results."""
    monkeypatch.setattr(bucket_store, "crowd", lambda buckets: kept_buckets.crowd(buckets, 2, 6))
    spec = spec_of("inner", None, None)
    assert isinstance(spec.work, StreamJoin)
    lab, model = StoreLab(spec, tmp_path, 2 << 10), Model(spec.work)
    compacted = 0
    for step in range(12):
        listed: list[Row] = [(step % 3, step % 2, step, str(step)), (1, RIGHT, step, "one")]
        assert run(lab, listed, step - 1, commit=True) == model.epoch(listed, step - 1)
        compacted += lab.compact()
    assert compacted > 0


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("meets", ["arrival", "settled"])
@settings(max_examples=40, deadline=None)
@given(epochs, st.sampled_from([64 << 20, 2 << 10]))
def test_history_is_its_definition(
    how: Matching, meets: Meets, drawn: list[tuple[list[Row], int, str]], share: int
) -> None:
    spec = spec_of(how, 0, 12, meets)
    assert isinstance(spec.work, StreamJoin)
    with tempfile.TemporaryDirectory() as folder:
        lab, model, watermark = StoreLab(spec, Path(folder), share), LookingBack(spec.work), 0
        for listed, moved, end in drawn:
            watermark += moved
            timely = [row for row in listed if row[0] is not None or spec.work.keeps_alone(row[1])]
            if end == "crash":
                run(lab, timely, watermark, commit=False)
                lab.reopen()
            assert run(lab, timely, watermark, commit=True) == model.epoch(timely, watermark)
            if end == "reopen":
                lab.reopen()


# ── right rows that match until a time of their own ──────────────────────────────────────────


def until_spec(how: Matching) -> OperatorSpec:
    spec, end = spec_of(how, None, None), Field("v1", "timestamp", "until")
    assert isinstance(spec.work, StreamJoin)
    work = replace(spec.work, bucket_us=4, until="v1")
    return replace(spec, inputs=(*spec.inputs, end), work=work)


def end_of(row: Row) -> int:
    """A right row with a long text matches for long; without a text it never does."""
    return row[2] + (2 * len(row[3]) if row[3] is not None else -1)


def until_batch(spec: OperatorSpec, listed: list[Row]) -> pa.RecordBatch:
    plain = batch_of(spec_of("inner", None, None), listed)
    ends = pa.array([end_of(row) for row in listed], input_schema(spec).field("v1").type)
    return pa.RecordBatch.from_arrays([*plain.columns, ends], schema=input_schema(spec))


@dataclass
class Until(Model):
    """Left rows expire at their own time; right rows never come out alone."""

    def _match(self, left: Row, right: Row) -> bool:
        return left[0] is not None and left[0] == right[0] and right[2] <= left[2] <= end_of(right)

    def _expire(self, out: Out) -> None:
        for at, row in self._of(LEFT):
            if at in self.expired or self.watermark is None or row[2] > self.watermark:
                continue
            self.expired.add(at)
            if at not in self.matched and self.work.how == "left":
                out[row[0], row[3], row[2], None, None] += 1
            if at not in self.matched and self.work.how == "anti":
                out[row[0], row[3], row[2]] += 1


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@settings(max_examples=60, deadline=None)
@given(epochs, st.sampled_from([64 << 20, 2 << 10]))
def test_rows_match_until_their_end(
    how: Matching, drawn: list[tuple[list[Row], int, str]], share: int
) -> None:
    spec = until_spec(how)
    assert isinstance(spec.work, StreamJoin)
    with tempfile.TemporaryDirectory() as folder:
        lab, model, watermark = StoreLab(spec, Path(folder), share), Until(spec.work), 0
        for listed, moved, end in drawn:
            watermark += moved
            timely = [row for row in listed if row[0] is not None or spec.work.keeps_alone(row[1])]
            if end == "crash":
                run(lab, timely, watermark, commit=False, batch=until_batch)
                lab.reopen()
            emitted = run(lab, timely, watermark, commit=True, batch=until_batch)
            assert emitted == model.epoch(timely, watermark)
            if end == "reopen":
                lab.reopen()


def test_state_is_bounded_by_the_end_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Auctions and bids come at a steady rate: ten times as many lifetimes later the state is as large."""
    monkeypatch.setattr(kept_buckets, "FILE_BYTES", 0)
    lab, sizes = StoreLab(until_spec("inner"), tmp_path), []
    for step in range(220):
        listed: list[Row] = [(key, side, step * 10, "x" * 20) for key in range(4) for side in (LEFT, RIGHT)]
        run(lab, listed, step * 10 - 5, commit=True, batch=until_batch)
        while lab.compact():
            pass
        assert lab.manifest is not None
        sizes.append((lab.manifest.keys, lab.manifest.state_bytes))
    for early, late in zip(sizes[20], sizes[-1], strict=True):
        assert late <= 1.2 * early


# ── the newest generation of a table ─────────────────────────────────────────────────────────


def table_spec(how: Matching) -> OperatorSpec:
    spec = until_spec(how)
    inputs = (spec.inputs[0], Field("v1", "int64", "generation"))
    left, right = (Field("v0", "string", "text"),), (Field("v0", "string", "text"),)
    work = StreamJoin(how, left, right, bucket_us=2, meets="arrival", generation="v1")
    return replace(spec, inputs=inputs, work=work, timed=False)


def table_batch(spec: OperatorSpec, listed: list[Row]) -> pa.RecordBatch:
    """The time of a right row is its generation; one with the text "mark" marks it."""
    plain = batch_of(spec_of("inner", None, None), listed)
    marks = [side + ALONE * (key is None or text == "mark") for key, side, _, text in listed]
    numbers = pa.array([2 * time for _, _, time, _ in listed], pa.int64())
    columns = [plain.column("__hash"), pa.array(marks, pa.int8()), *plain.columns[3:], numbers]
    return pa.RecordBatch.from_arrays(columns, schema=input_schema(spec))


tables = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=6)
steps = st.lists(
    st.tuples(st.none() | tables, tables, st.sampled_from(["commit", "crash", "reopen"])), max_size=8
)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([64 << 20, 2 << 10]))
def test_rows_meet_the_newest_generation(
    how: Matching, drawn: list[tuple[list[int] | None, list[int], str]], share: int
) -> None:
    spec = table_spec(how)
    newest: list[tuple[int, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        lab = StoreLab(spec, Path(folder), share)
        for number, (table, keys, end) in enumerate(drawn, 1):
            listed: list[Row] = []
            if table is not None:
                newest = [(key, f"{number}.{at}") for at, key in enumerate(table)]
                listed += [(key, RIGHT, number, text) for key, text in newest]
                listed.append((None, RIGHT, number, "mark"))
            listed += [(key, LEFT, 0, f"l{at}") for at, key in enumerate(keys)]
            expected: Out = Counter()
            for at, key in enumerate(keys):
                partners = [text for of, text in newest if of == key]
                if how in ("inner", "left"):
                    expected.update((key, f"l{at}", text) for text in partners)
                if not partners and how == "left":
                    expected[key, f"l{at}", None] += 1
                if how == ("semi" if partners else "anti"):
                    expected[key, f"l{at}"] += 1
            if end == "crash":
                run(lab, listed, 0, commit=False, batch=table_batch)
                lab.reopen()
            assert run(lab, listed, 0, commit=True, batch=table_batch) == expected
            if end == "reopen":
                lab.reopen()


def test_an_older_generation_is_dropped(tmp_path: Path) -> None:
    """After fifty generations the state has the rows of one."""
    lab, sizes = StoreLab(table_spec("inner"), tmp_path), []
    for number in range(1, 51):
        listed: list[Row] = [(key, RIGHT, number, "x" * 20) for key in range(4)]
        run(lab, [*listed, (None, RIGHT, number, "mark")], 0, commit=True, batch=table_batch)
        run(lab, [(1, LEFT, 0, "probe")], 0, commit=True, batch=table_batch)
        assert lab.manifest is not None
        assert len(lab.manifest.segments) == 1
        sizes.append(lab.manifest.state_bytes)
    assert sizes[-1] <= 1.2 * sizes[4]
