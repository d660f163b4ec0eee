"""Protects `merge_into`: a table has the rows of the result after every batch, also where filters split
updates, batches are repeated and keys are null. What has no key or no kind column is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batch_files import cut, run, stream_of, write_batches
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import QueryError

pytestmark = pytest.mark.spark


def bids(seed: int, count: int = 200) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "auction": pa.array([draw.choice([None, *range(12)]) for _ in range(count)], pa.int64()),
            "price": [draw.randrange(1000) for _ in range(count)],
        }
    )


def totals(df: DataFrame) -> DataFrame:
    """A total changes with every bid; the filter lets some of its values pass."""
    made = hr.stream(df).groupBy("auction").agg(total=hr.sum("price"), n=hr.count(), emit="changelog")
    return made.where("total % 3 <> 0").withColumn("double", F.col("total") * 2)


def expected(spark: SparkSession, folder: Path, parts: list[pa.Table]) -> list[tuple[Any, ...]]:
    write_batches(folder, parts)
    rows = spark.read.parquet(str(folder)).groupBy("auction")
    made = rows.agg(F.sum("price").alias("total"), F.count("*").alias("n")).where("total % 3 <> 0")
    return sorted(map(tuple, made.withColumn("double", F.col("total") * 2).collect()), key=repr)


def test_a_table_of_files_follows_the_result(spark: SparkSession, tmp_path: Path) -> None:
    parts = cut(bids(1), [5, 60, 61, 140])
    write_batches(tmp_path / "in", parts)
    spark.sql("CREATE TABLE merged (auction LONG, total LONG, n LONG, double LONG) USING parquet")
    try:
        changes = totals(stream_of(spark, tmp_path / "in"))
        merge = hr.merge_into(changes, "merged")

        def each(batch: DataFrame, number: int) -> None:
            for _ in range(2):  # Spark may repeat a batch
                merge(batch, number)
            rows = sorted(map(tuple, spark.table("merged").collect()), key=repr)
            assert rows == expected(spark, tmp_path / f"until{number}", parts[: number + 1])

        run(changes, tmp_path / "ck", each)
        warehouse = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
        folders = list((warehouse / "merged").glob("__merged-*"))
        assert len(folders) == 2  # that of now, and one for readers under way
    finally:
        spark.sql("DROP TABLE merged")


def test_a_function_gets_one_change_per_key(spark: SparkSession, tmp_path: Path) -> None:
    parts = cut(bids(2), [20, 21, 90])
    write_batches(tmp_path / "in", parts)
    changes = totals(stream_of(spark, tmp_path / "in"))
    table: dict[Any, tuple[Any, ...]] = {}

    def into(upserts: DataFrame, deletes: DataFrame) -> None:
        new, gone = list(map(tuple, upserts.collect())), [row[0] for row in deletes.collect()]
        assert len({row[0] for row in new} | set(gone)) == len(new) + len(gone)
        for key in gone:
            table.pop(key, None)
        table.update({row[0]: row for row in new})

    run(changes, tmp_path / "ck", hr.merge_into(changes, into))
    assert sorted(table.values(), key=repr) == expected(spark, tmp_path / "all", parts)


def test_what_cannot_be_merged_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [bids(3)])
    stream = stream_of(spark, tmp_path / "in")
    changes = totals(stream)
    with pytest.raises(QueryError, match="takes a changelog"):
        hr.merge_into(stream, "merged")
    with pytest.raises(QueryError, match="the kind column of a changelog was dropped"):
        hr.merge_into(changes.drop("_kind"), "merged")
    with pytest.raises(QueryError, match="auction, which identify a row, are not in the stream"):
        hr.merge_into(changes.drop("auction"), "merged")
    unranked = hr.stream(stream).groupBy("auction").top(2, by="price", emit="changelog")
    with pytest.raises(QueryError, match="no columns identify a row"):
        hr.merge_into(unranked, "merged")
    wrong = hr.merge_into(unranked, lambda upserts, deletes: None, keys=["auction"])
    with pytest.raises(Exception, match="two rows of one batch have the key"):
        run(unranked, tmp_path / "ck", wrong)
