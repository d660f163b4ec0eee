"""Protects top-N: rows and ranks after every batch are those of Spark's window functions over all rows.
All rankings, nulls and ties, both paths, a restart, and a changelog as input."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batch_files import Rows, cut, run, stream_of, write_batches
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import QueryError

pytestmark = pytest.mark.spark


def bids(seed: int, count: int = 300) -> pa.Table:
    """Prices repeat, so there are ties."""
    draw = random.Random(seed)
    return pa.table(
        {
            "auction": [draw.randrange(9) for _ in range(count)],
            "price": [None if draw.random() < 0.1 else draw.randrange(12) for _ in range(count)],
            "bidder": [draw.choice([None, "ann", "bob", "cleo", "dirk"]) for _ in range(count)],
            "number": list(range(count)),
        }
    )


def applied(state: Counter[tuple[Any, ...]], rows: Rows) -> None:
    for *row, kind in rows:
        if kind in ("update_before", "delete"):
            assert state[tuple(row)] > 0, f"no row {row} to take back"
            state[tuple(row)] -= 1
        else:
            state[tuple(row)] += 1


def check(spark: SparkSession, folder: Path, parts: list[pa.Table], ours: list[Rows], sql: str) -> None:
    """After every batch the applied changes equal the query over all rows until then."""
    state: Counter[tuple[Any, ...]] = Counter()
    for number, rows in enumerate(ours):
        applied(state, rows)
        write_batches(folder / f"until{number}", parts[: number + 1])
        spark.read.parquet(str(folder / f"until{number}")).createOrReplaceTempView("rows")
        assert +state == Counter(tuple(row) for row in spark.sql(sql).collect())


RANKED = """
    SELECT auction, price, bidder, number, {shown} FROM (SELECT *, {ranking}() OVER (PARTITION BY auction
    ORDER BY price DESC NULLS LAST, bidder ASC NULLS FIRST {more}) AS place FROM rows) WHERE place <= {n}
"""


@pytest.mark.parametrize(
    ("ranking", "bridge", "n"),
    [("row_number", "auto", 3), ("rank", "python", 2), ("dense_rank", "auto", 2)],
)
def test_ranks_are_sparks_after_every_batch(
    spark: SparkSession, tmp_path: Path, ranking: Any, bridge: str, n: int
) -> None:
    spark.conf.set("spark.headrace.bridge", bridge)
    parts = cut(bids(n), [2, 3, 80, 200])
    df = stream_of(spark, tmp_path / "in", "auction long, price long, bidder string, number long")
    order = ["price", F.col("bidder").asc()]

    def ranked() -> list[Rows]:
        top = (
            hr.stream(df)
            .groupBy("auction")
            .top(n, by=order, ranking=ranking, rank="place", emit="changelog")
        )
        return run(top, tmp_path / "ck")

    write_batches(tmp_path / "in", parts[:3])
    ours = ranked()
    write_batches(tmp_path / "in", parts[3:], first=3)
    ours += ranked()  # a restart in between
    spark.conf.unset("spark.headrace.bridge")
    more = ", number" if ranking == "row_number" else ""
    check(spark, tmp_path, parts, ours, RANKED.format(shown="place", ranking=ranking, more=more, n=n))


def test_rows_without_ranks_only_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    parts = cut(bids(8), [100, 101, 250])
    write_batches(tmp_path / "in", parts)
    top = (
        hr.stream(stream_of(spark, tmp_path / "in"))
        .groupBy("auction")
        .top(4, by=["price", F.asc("bidder")], emit="changelog")
    )
    ours = run(top, tmp_path / "ck")
    assert {row[-1] for rows in ours for row in rows} == {"insert", "delete"}
    sql = RANKED.format(shown="'x'", ranking="row_number", more=", number", n=4)
    check(spark, tmp_path, parts, [[(*row[:4], "x", row[4]) for row in rows] for rows in ours], sql)


def test_a_top_over_a_changelog_takes_rows_back(spark: SparkSession, tmp_path: Path) -> None:
    """Totals may fall, so that rows below the first ones return."""
    draw = random.Random(4)
    table = bids(5).append_column("delta", pa.array([draw.randrange(-9, 10) for _ in range(300)]))
    parts = cut(table, [100, 101, 102, 200])
    write_batches(tmp_path / "in", parts)
    df = stream_of(spark, tmp_path / "in")
    totals = (
        hr.stream(df)
        .name("totals")
        .groupBy("auction", "bidder")
        .agg(total=hr.sum("delta"), n=hr.count(), emit="changelog")
    )
    best = (
        hr.stream(totals)
        .name("best")
        .groupBy("auction")
        .top(2, by=["total", F.asc("bidder")], rank="place", emit="changelog")
    )
    sums = hr.stream(best).name("sums").groupBy("place").agg(total=hr.sum("total"), emit="changelog")
    sql = """SELECT place, sum(total) FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY total
        DESC NULLS LAST, bidder) AS place FROM (SELECT auction, bidder, sum(delta) AS total FROM rows
        GROUP BY auction, bidder)) WHERE place <= 2 GROUP BY place"""
    check(spark, tmp_path, parts, run(sums, tmp_path / "ck"), sql)


def test_wrong_tops_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [bids(1, 5)])
    grouped = hr.stream(stream_of(spark, tmp_path / "in")).groupBy("auction")
    for arguments, text in (
        ({"n": 0, "by": "price"}, "whole number"),
        ({"n": 1, "by": []}, "needs an order"),
        ({"n": 1, "by": "cost"}, "no column cost"),
        ({"n": 1, "by": "price", "ranking": "best"}, "row_number"),
        ({"n": 1, "by": "price", "rank": "bidder"}, "two output columns"),
    ):
        with pytest.raises(QueryError, match=text):
            grouped.top(**arguments)
