"""Protects state as a table of distinct values, changing groups, top-N, dedup and joins by key. A version
reads back as the model's rows of its moment, and changes between versions are those of the models."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.inspect.changes import changes_between
from headrace.inspect.partition import open_partition
from headrace.inspect.selection import Selection
from headrace.plan.spec import (
    HASH,
    SIDE,
    TIME,
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    Work,
    input_schema,
)
from headrace.plan.work.changes.distinct import Distinct
from headrace.plan.work.changes.retracting import Retracting
from headrace.plan.work.changes.top import Order, Top
from headrace.plan.work.dedup import Dedup
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.testing.contracts.store_lab import StoreLab

Row = tuple[int, int, bool]  # key, value, and whether it is new or taken back (a join: its side)
Table = Counter[tuple[Any, ...]]

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(-2, 4), st.booleans()), max_size=25)
EPOCHS = st.lists(
    st.tuples(ROWS, st.sampled_from(["settle", "settle", "break", "reopen", "compact"])),
    min_size=1,
    max_size=6,
)


class Model(Protocol):
    """What an operator's state is after some rows, in plain Python."""

    work: Work
    inputs: tuple[Field, ...]
    timed: bool

    def accepts(self, rows: list[Row], before: list[Row]) -> list[Row]:
        """The rows of an epoch that the operator may get, after those before."""

    def table(self, rows: list[Row]) -> Table:
        """The rows of the table after all rows."""


class Plain:
    """An operator that takes every row."""

    inputs: tuple[Field, ...] = (Field("v0", "int64"),)
    timed = False

    def accepts(self, rows: list[Row], before: list[Row]) -> list[Row]:
        return rows


class DistinctModel(Plain):
    """How many values a group has seen, and its rows."""

    inputs = (Field("v0", "int64"), Field("d0", "int64"))
    work = Distinct(
        Fold((Accumulator("count", "d0", "int64"), Accumulator("count", None, "int64"))), ("d0",)
    )

    def table(self, rows: list[Row]) -> Table:
        seen: dict[int, list[int]] = defaultdict(list)
        for key, value, _ in rows:
            seen[key].append(value)
        return Counter((key, len(set(values)), len(values)) for key, values in seen.items())


class Changing(Plain):
    """Rows that are taken back were present before."""

    sign = "v1"
    inputs = (Field("v0", "int64"), Field("v1", "int64"))

    def accepts(self, rows: list[Row], before: list[Row]) -> list[Row]:
        present = living(before)
        allowed = []
        for key, value, is_new in rows:
            if is_new or present[key, value]:
                present[key, value] += 1 if is_new else -1
                allowed.append((key, value, is_new))
        return allowed


class GroupsModel(Changing):
    """The number of rows of a group; a group without rows is none."""

    work = Retracting((Accumulator("sum", "v1", "int64", "wrap"),), 0)

    def table(self, rows: list[Row]) -> Table:
        groups: Counter[int] = Counter()
        for (key, _), n in living(rows).items():
            groups[key] += n
        return Counter((key, n) for key, n in groups.items() if n)


class ChangingTopModel(Changing):
    """All rows of a key stay, because those before them may be taken back."""

    work = Top(2, (Order("v0"),), "row_number", True, "v1")

    def table(self, rows: list[Row]) -> Table:
        return +living(rows)


class TopModel(Plain):
    """The two largest rows of a key."""

    work = Top(2, (Order("v0"),), "row_number", False)

    def table(self, rows: list[Row]) -> Table:
        bags: dict[int, list[int]] = defaultdict(list)
        for key, value, _ in rows:
            bags[key].append(value)
        return Counter((key, value) for key, bag in bags.items() for value in sorted(bag)[-2:])


class DedupModel(Plain):
    """Keys that were seen."""

    work = Dedup("first", 0)

    def table(self, rows: list[Row]) -> Table:
        return Counter({(key, 0) for key, _, _ in rows})  # without event time the time is 0


class LastModel(Plain):
    """Keys with the time of their last row; the value is that time."""

    timed = True
    work = Dedup("last", 1000)

    def table(self, rows: list[Row]) -> Table:
        last: dict[int, int] = {}
        for key, value, _ in rows:
            last[key] = max(value, last.get(key, value))
        return Counter(last.items())


class JoinModel(Plain):
    """The rows of both sides, each with its side."""

    work = StreamJoin("inner", (Field("v0", "int64"),), (Field("v0", "int64"),))

    def table(self, rows: list[Row]) -> Table:
        return Counter((key, int(side), value) for key, value, side in rows)


def living(rows: Iterable[Row]) -> Counter[tuple[int, int]]:
    """How often each row is present."""
    counts: Counter[tuple[int, int]] = Counter()
    for key, value, is_new in rows:
        counts[key, value] += 1 if is_new else -1
    return counts


MODELS: dict[str, Callable[[], Model]] = {
    "distinct": DistinctModel,
    "groups": GroupsModel,
    "top": TopModel,
    "top of a changelog": ChangingTopModel,
    "dedup": DedupModel,
    "dedup, the last row": LastModel,
    "join": JoinModel,
}


def spec_of(model: Model) -> OperatorSpec:
    return OperatorSpec(
        name="op",
        keys=(Field("k0", "int64", "key"),),
        inputs=model.inputs,
        work=model.work,
        window=None,
        emit="changes",
        timed=model.timed,
        delays_ms=(),
        partitions=1,
        store="aar" if model.work.keeps_rows else "rmw",
    )


def batch_of(spec: OperatorSpec, rows: list[Row]) -> pa.RecordBatch:
    """Two keys share a hash, so that only their bytes tell them apart."""
    made = {
        HASH: [key // 2 << 40 for key, _, _ in rows],
        TIME: [value for _, value, _ in rows],
        SIDE: [int(side) for _, _, side in rows],
        "k0": [key for key, _, _ in rows],
        "v0": [value for _, value, _ in rows],
        "d0": [value for _, value, _ in rows],
        "v1": [1 if is_new else -1 for _, _, is_new in rows],
    }
    schema = input_schema(spec)
    return pa.RecordBatch.from_arrays([pa.array(made[f.name], f.type) for f in schema], schema=schema)


def play(lab: StoreLab, rows: list[Row], *, commit: bool) -> None:
    lab.begin()
    for start in range(0, len(rows), 7):
        lab.store.apply(batch_of(lab.spec, rows[start : start + 7]))
    if not commit:
        lab.reopen()
        return
    write = lab.store.gather(None)
    list(lab.store.results(None))
    lab.settle(write(), None)


def plain(batches: Iterable[pa.RecordBatch]) -> Table:
    rows: Table = Counter()
    for batch in batches:
        columns = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in batch.columns[1:]
        ]
        rows.update(zip(*(column.to_pylist() for column in columns), strict=True))
    return rows


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=25, deadline=None)
@given(epochs=EPOCHS, share=st.sampled_from([24 << 10, 64 << 20]))
def test_every_version_reads_back_as_the_model(
    name: str, epochs: list[tuple[list[Row], str]], share: int
) -> None:
    model = MODELS[name]()
    spec = spec_of(model)
    with tempfile.TemporaryDirectory() as folder:
        lab, done, versions = StoreLab(spec, Path(folder), share), list[Row](), []
        for rows, step in epochs:
            allowed = model.accepts(rows, done)
            if step == "reopen":
                lab.reopen()
            play(lab, allowed, commit=step != "break")
            if step == "break":
                continue
            done += allowed
            while step == "compact" and lab.compact():
                pass
            versions.append((lab.manifest, model.table(done)))
        for manifest, expected in versions:
            assert read(lab, manifest, Selection(spec)) == expected
            chosen = Selection(spec, (("k0", (1, 4)),))
            vars(chosen)["hashes"] = None  # the lab has hashes of its own: rows are filtered
            fitting = Counter({row: n for row, n in expected.items() if row[0] in (1, 4)})
            assert read(lab, manifest, chosen) == fitting
        for (old, before), (new, after) in itertools.pairwise(versions):
            check_changes(lab, old, new, before, after)


def read(lab: StoreLab, manifest: Any, selection: Selection) -> Table:
    with open_partition(lab.home.blobs, "p", lab.spec, manifest) as state:
        return plain(state.batches(selection, chunk_rows=7))


def check_changes(lab: StoreLab, old: Any, new: Any, before: Table, after: Table) -> None:
    with (
        open_partition(lab.home.blobs, "p", lab.spec, old) as left,
        open_partition(lab.home.blobs, "p", lab.spec, new) as right,
    ):
        parts = list(changes_between(left, right))
    changes = {
        kind: plain(batch for part, batch in parts if part == kind)
        for kind in ("insert", "update", "delete")
    }
    gone = changes["delete"] + Counter(
        row for row in before if any(row[:1] == other[:1] for other in changes["update"])
    )
    assert before - gone + changes["insert"] + changes["update"] == after
