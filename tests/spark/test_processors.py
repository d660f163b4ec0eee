"""Protects user processors: a class written for PySpark's `transformWithState` gives the same rows in both
engines, over random batches, restarts included. A failing processor leaves the state as it was."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor_case import FAR, prepared, random_batches, run, write_batches
from processor_classes import COUNTED, OUTPUT, AllStates, RunningCount, RunningCountFrames
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

import headrace as hr

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def engines(spark: SparkSession) -> Iterator[None]:
    with prepared(spark, sys.modules[__name__]):
        yield


def ours(df: DataFrame) -> Any:
    return hr.stream(df).withWatermark("ts", "10 seconds").groupBy("id")


def theirs(df: DataFrame) -> Any:
    return df.withWatermark("ts", "10 seconds").groupBy("id")


@pytest.mark.parametrize("seed", [1, 2])
def test_all_states_and_timers_are_sparks(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    batches = random_batches(seed)
    rows: dict[str, Counter[tuple[Any, ...]]] = {"ours": Counter(), "theirs": Counter()}
    for first, part in ((0, batches[:3]), (3, batches[3:])):  # a restart in between
        write_batches(tmp_path / "in", part, first)
        for name, grouped in (("ours", ours), ("theirs", theirs)):
            rows[name] += run(
                spark,
                tmp_path,
                name,
                lambda df, grouped=grouped: grouped(df).transformWithState(
                    AllStates(), OUTPUT, "Update", "EventTime"
                ),
            )
    assert {row[1] for row in rows["ours"]} == {"rows", "timer"}
    assert rows["ours"] == rows["theirs"]


@pytest.mark.parametrize("style", ["row", "pandas"])
def test_counts_are_sparks_in_every_batch(spark: SparkSession, tmp_path: Path, style: str) -> None:
    write_batches(tmp_path / "in", random_batches(5))

    def counted(grouped: Any) -> DataFrame:
        if style == "row":
            frame: DataFrame = grouped.transformWithState(
                RunningCount(), "id string, n long", "Update", "None"
            )
        else:
            frame = grouped.transformWithStateInPandas(RunningCountFrames(), COUNTED, "Update", "None")
        return frame

    mine = run(spark, tmp_path, "ours", lambda df: counted(hr.stream(df).groupBy("id")))
    assert mine == run(spark, tmp_path, "theirs", lambda df: counted(df.groupBy("id")))


class Failing(RunningCount):
    """Fails at a row of value 13."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        rows = list(rows)
        yield from super().handleInputRows(key, iter(rows), timerValues)
        if any(row.v == 13 for row in rows):
            raise ValueError("thirteen")


def test_a_failed_batch_leaves_state_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"id": "a", "v": v, "ts": FAR} for v in (1, 2)]
    write_batches(tmp_path / "in", [rows, [{"id": "a", "v": 13, "ts": FAR}]])

    def stream(processor: RunningCount) -> Any:
        return lambda df: (
            hr.stream(df).groupBy("id").transformWithState(processor, COUNTED, "Update", "None")
        )

    with pytest.raises(StreamingQueryException) as failed:
        run(spark, tmp_path, "ours", stream(Failing()))
    assert "thirteen" in str(failed.value)
    assert "('a',)" in str(failed.value)
    assert run(spark, tmp_path, "ours", stream(RunningCount())) == Counter({("a", 3): 1})


def test_a_large_list_and_a_large_map_grow_beyond_one_cell(spark: SparkSession, tmp_path: Path) -> None:
    class Large(RunningCount):
        def init(self, handle: Any) -> None:
            super().init(handle)
            self.values = handle.getListState("values", "v long")
            self.seen = handle.getMapState("seen", "v long", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            for row in rows:
                self.values.appendValue((row.v,))
                self.seen.updateValue((row.v,), (row.v + 1,))
            total = sum(v for (v,) in self.values.get())
            yield Row(id=f"{len(list(self.seen.keys()))}/{self.seen.getValue((7,))[0]}", n=total)

    batches = [[{"id": "a", "v": n * 1000 + v, "ts": FAR} for v in range(1000)] for n in range(3)]
    write_batches(tmp_path / "in", batches)
    rows = run(
        spark,
        tmp_path,
        "ours",
        lambda df: hr.stream(df).groupBy("id").transformWithState(Large(), COUNTED, "Update", "None"),
    )
    values = [v for n in range(3) for v in range(n * 1000, n * 1000 + 1000)]
    assert rows == Counter({(f"{count}/8", sum(values[:count])): 1 for count in (1000, 2000, 3000)})


def add_in_arrow(rows: Any, state: Any) -> Any:
    import pyarrow as pa

    both = pa.concat_tables([state, rows.select(["id", "v"]).rename_columns(["id", "total"])])
    totals = both.group_by("id").aggregate([("total", "sum")]).rename_columns(["id", "total"])
    return totals, totals


def add_in_pandas(rows: Any, state: Any) -> Any:
    import pandas as pd

    both = pd.concat([state, rows[["id", "v"]].rename(columns={"v": "total"})])
    totals = both.groupby("id", as_index=False)["total"].sum()
    return totals, totals


@pytest.mark.parametrize("style", ["arrow", "pandas"])
def test_a_vectorised_sum_is_the_batch_sum(spark: SparkSession, tmp_path: Path, style: str) -> None:
    batches = random_batches(8)
    expected: Counter[tuple[Any, ...]] = Counter()
    totals: dict[str, int] = {}
    for rows in batches:
        for row in rows:
            totals[row["id"]] = totals.get(row["id"], 0) + row["v"]
        expected.update((key, totals[key]) for key in {row["id"] for row in rows})

    def summed(df: DataFrame) -> DataFrame:
        grouped, schemas = hr.stream(df).groupBy("id"), ("total long", "id string, total long")
        if style == "arrow":
            return grouped.updateInArrow(add_in_arrow, *schemas)
        return grouped.updateInPandas(add_in_pandas, *schemas)

    write_batches(tmp_path / "in", batches[:2])
    rows = run(spark, tmp_path, "ours", summed)
    write_batches(tmp_path / "in", batches[2:], 2)
    assert rows + run(spark, tmp_path, "ours", summed) == expected
