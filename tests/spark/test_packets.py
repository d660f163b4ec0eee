"""Protects packets, in which rows cross the shuffle to the JVM operator: values of all types and nulls come
back as Spark itself has them. A packet ends at its bounds of rows and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from test_bridge import settings
from test_bridge_internals import nodes

import headrace as hr
from headrace.spark.build import describe

pytestmark = pytest.mark.spark

ROWS = 2000
COLUMNS = {
    "flag": "id % 2 = 0",
    "tiny": "cast(id % 256 - 128 as tinyint)",
    "small": "cast(id * 31 % 65536 - 32768 as smallint)",
    "whole": "cast(id * 1000003 - 1000000000 as int)",
    "large": "xxhash64(id)",
    "single": "if(id % 5 = 0, float('nan'), cast(id as float) / 3)",
    "double": "if(id % 5 = 0, double('-infinity'), -cast(id as double) / 7)",
    "short_decimal": "cast(id - 1000 as decimal(9,2)) / 4",
    "long_decimal": "cast(xxhash64(id) as decimal(30,5)) * 1000003",
    "text": "repeat('ü', cast(id % 9 as int))",
    "raw": "unhex(repeat('0f', cast(id % 7 as int)))",
    "day": "date_add(date'1969-12-01', cast(id as int))",
    "at": "timestamp_micros(xxhash64(id) % 1000000000000000)",
    "local_at": "timestamp_ntz'1960-01-01 00:00:00' + make_dt_interval(0, 0, 0, id / 1000)",
    "lasted": "make_dt_interval(0, 0, id - 1000, id / 1000)",
    "nothing": "cast(null as string)",
}
BOUNDS = {
    "none": {},
    "rows": {"_PACKET_ROWS": 7},
    "bytes": {"_PACKET_BYTES": 900},
    "total": {"_TASK_BYTES": 3000},
}


@pytest.fixture(scope="module")
def ids(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ids") / "in"
    spark.range(0, ROWS, 1, 2).write.parquet(str(folder))
    return folder


@pytest.fixture(autouse=True)
def _jvm(spark: SparkSession) -> Iterator[None]:
    with settings(spark, bridge="jvm"):
        yield


def of_all_types(ids: DataFrame) -> DataFrame:
    """Each type twice: never null, and null in every third row."""
    gaps = [f"if(id % 3 = 0, null, {text}) as {name}_or_null" for name, text in COLUMNS.items()]
    return ids.selectExpr("id", *(f"{text} as {name}" for name, text in COLUMNS.items()), *gaps)


def returned(df: DataFrame, checkpoint: Path) -> tuple[list[str], int]:
    """The rows of the only batch, and how many records its shuffle had."""
    rows: list[Any] = []

    def collect(batch: DataFrame, _: int) -> None:
        rows.extend(batch.collect())

    writer = df.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(collect)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    (shuffle,) = nodes(query._jsq.streamingQuery().lastExecution().executedPlan(), "ShuffleExchangeExec")
    return sorted(map(repr, rows)), int(shuffle.metrics().apply("shuffleRecordsWritten").value())


@pytest.mark.parametrize("bound", BOUNDS)
def test_values_of_all_types_cross_the_shuffle(
    spark: SparkSession, ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    for name, value in BOUNDS[bound].items():
        monkeypatch.setattr(describe, name, value)
    stream = hr.stream(of_all_types(spark.readStream.schema("id long").parquet(str(ids)))).name("all")
    rows, packets = returned(stream.dropDuplicates(["id"]), tmp_path)
    assert rows == sorted(map(repr, of_all_types(spark.read.parquet(str(ids))).collect()))
    if bound == "none":
        assert packets == 6, "one per task below and partition"
    else:
        assert ROWS / 20 < packets < ROWS / 2
