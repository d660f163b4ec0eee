"""Protects the promise that Headrace's aggregates are Spark's: random schemas, keys, nulls, values and
micro-batches, run through the state host and compared, batch by batch, with Spark's own groupBy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cases import BATCHES, DELAY_S, MODES, WINDOWS, Case, case_of
from oracle import Rows, by_group, differences, expected, is_late, schema_of, watermarks
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

pytestmark = pytest.mark.spark


def source(spark: SparkSession, case: Case, folder: Path) -> DataFrame:
    """A stream that brings one of the case's batches at a time."""
    rows = spark.createDataFrame(list(case.rows), case.schema).coalesce(1)
    rows.withColumn("part", F.col("batch")).write.partitionBy("part").parquet(str(folder / "written"))
    arriving = folder / "arriving"
    arriving.mkdir()
    for batch in range(BATCHES):
        (part,) = (folder / "written" / f"part={batch}").glob("*.parquet")
        moved = part.rename(arriving / f"{batch}.parquet")
        os.utime(moved, (1_700_000_000 + batch, 1_700_000_000 + batch))
    reader = spark.readStream.schema(case.schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(arriving))


def operator(stream: DataFrame, case: Case) -> DataFrame:
    aggregates: dict[str, Any] = {f"{f}_{c}": getattr(hr, f)(c) for f, c in case.aggregates}
    rows = hr.stream(stream)
    if case.mode != "window without watermark":
        rows = rows.withWatermark("ts", f"{DELAY_S} seconds")
    if case.mode == "running":
        return rows.groupBy(*case.keys).agg(**aggregates)
    emit = "final" if case.mode.endswith("final") else "changes"
    width, slide, lateness = (f"{seconds} seconds" for seconds in WINDOWS[case.mode])
    window = hr.sliding(width, slide, on="ts", lateness=lateness)
    if slide == width:
        window = hr.tumbling(width, on="ts", lateness=lateness)
    return rows.groupBy(*case.keys, window).agg(emit=emit, **aggregates)


def run(result: DataFrame, checkpoint: Path) -> dict[int, list[Any]]:
    """The rows of every batch."""
    came: dict[int, list[Any]] = {}

    def take(rows: DataFrame, batch: int) -> None:
        came[batch] = rows.collect()

    writer = result.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return came


def test_the_cases_have_late_rows_and_closed_windows() -> None:
    final = case_of(MODES.index("window final"))
    marks = watermarks(final)
    late = [row for row in final.rows if row[1] is not None and is_late(row, marks)]
    assert late
    assert len(late) < len(final.rows) / 4


def test_random_cases(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    case = case_of(seed)
    result = operator(source(spark, case, tmp_path), case)
    came = run(result, tmp_path / "checkpoint")
    want = expected(spark, case)
    assert any(want), "the case must expect something"
    got: list[Rows] = [by_group(came.get(batch, []), case) for batch in range(BATCHES)]
    for batch in range(BATCHES):
        assert differences(got[batch], want[batch]) == [], f"seed {seed}, {case.mode}, batch {batch}"


def test_result_types_are_sparks(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    case = case_of(seed)
    stream = spark.readStream.schema(case.schema).parquet(str(tmp_path))
    mine = operator(stream, case)
    groups: list[Any] = [*case.keys]
    if case.mode != "running":
        groups.append(F.window("ts", *(f"{seconds} seconds" for seconds in WINDOWS[case.mode][:2])))
    sparks = stream.groupBy(*groups).agg(*(getattr(F, f)(c).alias(f"{f}_{c}") for f, c in case.aggregates))
    assert schema_of(mine) == schema_of(sparks)


def test_a_window_over_windows(spark: SparkSession, tmp_path: Path) -> None:
    case = case_of(2)
    rows = hr.stream(source(spark, case, tmp_path)).withWatermark("ts", f"{DELAY_S} seconds")
    small = rows.groupBy(hr.tumbling("1 minute")).agg(n=hr.count())
    large = hr.stream(small).groupBy(hr.tumbling("3 minutes", on="window")).agg(n=hr.sum("n"))
    came = run(large, tmp_path / "checkpoint")
    totals = {row["window"]["end"]: row["n"] for batch in came.values() for row in batch}
    direct = run(rows.groupBy(hr.tumbling("1 minute")).agg(n=hr.count()), tmp_path / "direct")
    summed: dict[Any, int] = {}
    for row in (row for batch in direct.values() for row in batch):
        end = next((end for end in sorted(totals) if row["window"]["end"] <= end), None)
        summed[end] = summed.get(end, 0) + row["n"]
    assert totals
    assert {end: summed.get(end) for end in totals} == totals
