"""Protects the other side of `bench flowkv`: what Spark is given to do is the same query.

Spark runs its wording as a batch over events that are all in time, and DuckDB answers over the same ones.
Windows that a stream would not have closed yet are left out on both sides.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from flowkv_oracle import DELAY_MS, Oracle, Rows
from pyspark.sql import DataFrame, SparkSession

from headrace.bench.flowkv import spark as flowkv_spark
from headrace.generators.nexmark import NexmarkConfig, NexmarkGenerator

pytestmark = [pytest.mark.spark, pytest.mark.long]

EVENTS = 8_000
VIEWS = {"bid": ("auction", "bidder", "price"), "person": ("id", "name"), "auction": ("seller",)}


@pytest.fixture(scope="module")
def events() -> dict[str, pa.Table]:
    generator = NexmarkGenerator(NexmarkConfig(rate=200, out_of_order_group=500, extra=False))
    return {
        view: pa.table(generator.batch(view, 0, EVENTS)).select([*columns, "dateTime"])
        for view, columns in VIEWS.items()
    }


@pytest.fixture(scope="module")
def oracle(events: dict[str, pa.Table]) -> Oracle:
    return Oracle(*(_in_one_batch(rows) for rows in events.values()))


def _in_one_batch(rows: pa.Table) -> pa.Table:
    times = pc.divide(rows["dateTime"].cast(pa.int64()), 1000)
    timed = rows.drop(["dateTime"]).append_column("t", times)
    return timed.append_column("batch", pa.array([0] * len(rows)))


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, events: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, DataFrame]:
    folder = tmp_path_factory.mktemp("events")
    for view, rows in events.items():
        pq.write_table(rows, _file(folder, view))
    return {view: spark.read.parquet(str(_file(folder, view))) for view in events}


def _file(folder: Path, view: str) -> Path:
    return folder / f"{view}.parquet"


def closed_until(oracle: Oracle, query: str) -> int:
    streams = (oracle.persons, oracle.auctions) if query == "q8" else (oracle.bids,)
    return min(pc.max(stream["t"]).as_py() for stream in streams) - DELAY_MS


ENDS = {  # when the window of a result ends, in milliseconds
    "q5": "unix_millis(end)",
    "q7": "unix_millis(dateTime) div 10000 * 10000 + 10000",
    "q8": "unix_millis(start) + 10000",
    "q11": "unix_millis(session_window.end)",
    "q12": "0",
}
COLUMNS = {  # the columns that the oracle returns
    "q5": ["unix_millis(end)", "auction", "num"],
    "q7": ["auction", "bidder", "price", "unix_millis(dateTime)"],
    "q8": ["id", "name", "unix_millis(start)", "auctions"],
    "q11": ["bidder", "unix_millis(session_window.start)", "unix_millis(session_window.end)", "num"],
    "q12": ["bidder", "num"],
}


@pytest.mark.parametrize("query", flowkv_spark.NAMES)
def test_spark_is_asked_the_same(tables: dict[str, DataFrame], oracle: Oracle, query: str) -> None:
    if query == "q8":
        results = flowkv_spark.q8(tables["person"], tables["auction"])
    else:
        results = flowkv_spark.OVER_BIDS[query](tables["bid"])
    # Spark would filter sessions too early.
    answers = results.selectExpr(ENDS[query], *COLUMNS[query]).collect()
    rows: Rows = sorted(tuple(row[1:]) for row in answers if row[0] <= closed_until(oracle, query))
    assert rows == oracle.rows(query) != []
