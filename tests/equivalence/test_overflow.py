"""Protects sums that leave their type: Spark's wrapped numbers and nulls without ANSI mode, and with it an
error that stops the query and names the column's type."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

pytestmark = pytest.mark.spark

SCHEMA = "k int, i bigint, d decimal(38,0)"
BIG = Decimal(9).scaleb(37)
ROWS = [(1, 2**63 - 1, BIG), (1, 5, BIG), (2, 7, Decimal(8)), (3, None, None)]


@pytest.fixture
def ansi(spark: SparkSession) -> Iterator[Any]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    yield lambda on: spark.conf.set("spark.sql.ansi.enabled", str(on).lower())
    spark.conf.set("spark.sql.ansi.enabled", before)


def run(rows: DataFrame, folder: Path, **aggregates: Any) -> list[Any]:
    rows.write.parquet(str(folder / "in"))
    stream = rows.sparkSession.readStream.schema(SCHEMA).parquet(str(folder / "in"))
    came: list[Any] = []
    result = hr.stream(stream).groupBy("k").agg(**aggregates)
    writer = result.writeStream.foreachBatch(lambda batch, _: came.extend(batch.collect()))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    return sorted(came)


def test_without_ansi_mode_sums_are_sparks(spark: SparkSession, tmp_path: Path, ansi: Any) -> None:
    ansi(False)
    rows = spark.createDataFrame(ROWS, SCHEMA).coalesce(1)
    came = run(rows, tmp_path, i=hr.sum("i"), d=hr.sum("d"), m=hr.avg("d"))
    want = rows.groupBy("k").agg(F.sum("i").alias("i"), F.sum("d").alias("d"), F.avg("d").alias("m"))
    assert came == sorted(want.collect())
    assert came[0].i < 0
    assert came[0].d is None


@pytest.mark.parametrize(("column", "kind"), [("i", "int64"), ("d", "decimal(38,0)")])
def test_in_ansi_mode_the_query_stops(
    spark: SparkSession, tmp_path: Path, ansi: Any, column: str, kind: str
) -> None:
    ansi(True)
    rows = spark.createDataFrame(ROWS, SCHEMA).coalesce(1)
    with pytest.raises(StreamingQueryException) as error:
        run(rows, tmp_path, x=hr.sum(column))
    assert "ArithmeticOverflow" in str(error.value)
    assert kind in str(error.value)
