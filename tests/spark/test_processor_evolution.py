"""Protects the state of user code over restarts with changed variables: new ones, new fields and wider
types read what there is; other changes are refused and leave the state as it was."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor_case import FAR, prepared, run, write_batches
from processor_classes import COUNTED, RunningCount
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession

import headrace as hr
from headrace.errors import QueryError

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def engines(spark: SparkSession) -> Iterator[None]:
    with prepared(spark, sys.modules[__name__]):
        yield


class Narrow(RunningCount):
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n int")


class Wider(RunningCount):
    """A variable before `count`, and `count` with a wider type and a new field."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getListState("seen", "v long")
        self.count = handle.getValueState("count", "n long, note string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n, note = self.count.get() if self.count.exists() else (0, "new")
        for row in rows:
            n += 2**40
            self.seen.appendValue((row.v,))
        self.count.update((n, "changed"))
        yield Row(id=f"{key[0]} {note} {[v for (v,) in self.seen.get()]}", n=n % 2**40)


class Other(RunningCount):
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n string")


class Deleting(RunningCount):
    """Without `count`, which it deletes; or with `count`, which then begins empty."""

    def __init__(self, deletes: bool) -> None:
        self.deletes = deletes

    def init(self, handle: Any) -> None:
        if self.deletes:
            handle.deleteIfExists("count")
            handle.deleteIfExists("never declared")
        else:
            handle.deleteIfExists("rest")
        self.count = handle.getValueState("rest" if self.deletes else "count", "n long")


def counted(processor: RunningCount) -> Any:
    return lambda df: hr.stream(df).groupBy("id").transformWithState(processor, COUNTED, "Update", "None")


def test_compatible_changes_are_taken_and_others_refused(spark: SparkSession, tmp_path: Path) -> None:
    row = {"id": "a", "v": 5, "ts": FAR}
    write_batches(tmp_path / "in", [[row, row]])
    assert run(spark, tmp_path, "ck", counted(Narrow())) == Counter({("a", 2): 1})
    write_batches(tmp_path / "in", [[row]], 1)
    with pytest.raises(StreamingQueryException, match=r"count.*n was integer, is now string"):
        run(spark, tmp_path, "ck", counted(Other()))
    assert run(spark, tmp_path, "ck", counted(Wider())) == Counter({("a None [5]", 2): 1})
    write_batches(tmp_path / "in", [[row]], 2)
    assert run(spark, tmp_path, "ck", counted(Wider())) == Counter({("a changed [5, 5]", 2): 1})
    write_batches(tmp_path / "in", [[row]], 3)
    with pytest.raises(StreamingQueryException, match="note: fields are missing"):
        run(spark, tmp_path, "ck", counted(RunningCount()))


def test_a_deleted_variable_is_never_read_again(spark: SparkSession, tmp_path: Path) -> None:
    for number, (processor, n) in enumerate(
        [(RunningCount(), 1), (RunningCount(), 2), (Deleting(True), 1), (Deleting(False), 1)]
    ):
        write_batches(tmp_path / "in", [[{"id": "a", "v": 5, "ts": FAR}]], number)
        assert run(spark, tmp_path, "ck", counted(processor)) == Counter({("a", n): 1})


@hr.point_update
def totals(rows: Any, state: Any) -> Any:
    import pyarrow as pa

    parts = [state.select(["id", "total"]), rows.select(["id", "v"]).rename_columns(["id", "total"])]
    both = pa.concat_tables(parts, promote_options="permissive")
    summed = both.group_by("id").aggregate([("total", "sum")]).rename_columns(["id", "total"])
    new_state = (
        summed if state.num_columns == 2 else summed.append_column("note", pa.array(["x"] * len(summed)))
    )
    return new_state, summed


def test_a_vectorised_state_evolves(spark: SparkSession, tmp_path: Path) -> None:
    row = {"id": "a", "v": 5, "ts": FAR}
    rows: Counter[Any] = Counter()
    for number, schema in enumerate(["total int", "total long, note string"]):
        write_batches(tmp_path / "in", [[row, row]], number)
        rows += run(
            spark,
            tmp_path,
            "ck",
            lambda df, schema=schema: (
                hr.stream(df).groupBy("id").updateInArrow(totals, schema, "id string, total long")
            ),
        )
    assert rows == Counter({("a", 10): 1, ("a", 20): 1})


def test_marks_choose_the_layout(spark: SparkSession) -> None:
    source = spark.readStream.format("rate").load().selectExpr("'a' AS id", "value AS v")
    grouped = hr.stream(source).groupBy("id")
    grouped.updateInArrow(totals, "total long", "id string, total long")

    @hr.range_read
    def marked(rows: Any, state: Any) -> Any:
        return state, rows

    for update in (grouped.updateInArrow, grouped.updateInPandas):
        with pytest.raises(
            QueryError, match=rf"range_read on a function of {update.__name__}: it gets all"
        ):
            update(marked, "total long", "id string, total long")


@hr.append
def logged(rows: Any, state: Any) -> Any:
    import pyarrow as pa

    added = rows.select(["id", "v"])
    both = pa.concat_tables([state, added])
    output = both.group_by("id").aggregate([("v", "count"), ("v", "sum"), ("v", "list")])
    ends = pa.array(
        [",".join(map(str, (*values[:2], *values[-2:]))) for values in output["v_list"].to_pylist()]
    )
    columns = [output["id"], output["v_count"], output["v_sum"], ends]
    return added, pa.table(columns, names=["id", "n", "total", "ends"])


def test_appended_state_rows_are_added_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """More rows than a chunk has, over restarts; a key without new rows keeps its own."""
    batches = [
        [{"id": "many", "v": n * 1000 + v, "ts": FAR} for v in range(300)]
        + [{"id": "b", "v": n, "ts": FAR}] * n
        for n in range(4)
    ]
    seen: dict[str, list[int]] = {}
    expected: Counter[Any] = Counter()
    rows: Counter[Any] = Counter()
    for number, batch in enumerate(batches):
        write_batches(tmp_path / "in", [batch], number)
        for row in batch:
            seen.setdefault(row["id"], []).append(row["v"])
        for key in {row["id"] for row in batch}:
            own = seen[key]
            ends = ",".join(map(str, (*own[:2], *own[-2:])))
            expected[key, len(own), sum(own), ends] += 1
        rows += run(
            spark,
            tmp_path,
            "ck",
            lambda df: (
                hr.stream(df)
                .groupBy("id")
                .updateInArrow(logged, "v long", "id string, n long, total long, ends string")
            ),
        )
    assert rows == expected
