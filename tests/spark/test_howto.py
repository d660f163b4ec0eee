"""Protects the how-to guides: every Python example of them runs, in its order, on a query of two batches.

An example may use `events` (a stream of user, ts, amount), `checkpoint`, `raw` (rows as Kafka has them);
on the pages of `STARTED` also `totals` and its `query`, which has run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from streaming_case import Case

import headrace as hr
import headrace.inspect
from headrace.testing.faults.s3_server import BUCKET, S3Server

pytestmark = pytest.mark.spark

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(page.stem for page in HOWTO.glob("*.md") if BLOCK.search(page.read_text()))
STARTED = {"memory", "prefetch", "rescaling"}


@pytest.fixture
def names(case: Case) -> dict[str, Any]:
    case.feed(("ann", 0, 1.0), ("bob", 1, 2.0))
    case.feed(("ann", 2, 4.0))
    return {"spark": case.spark, "hr": hr, "events": case.source(), "checkpoint": str(case.checkpoint)}


@pytest.mark.parametrize("page", [page for page in PAGES if page != "s3"])
def test_the_examples_of_a_page_run(page: str, case: Case, names: dict[str, Any]) -> None:
    if page in STARTED:
        totals = case.totals()
        writer = totals.writeStream.format("noop").option("checkpointLocation", str(case.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        names |= {"totals": totals, "query": query, "write": lambda rows, _: rows.collect()}
    if page == "kafka":
        names["raw"] = records(case.source())
    run(page, names)
    for query in case.spark.streams.active:
        query.processAllAvailable()
        query.stop()
    if page == "from-spark":
        assert ann(case) == {"n": 11, "total": 5.5}
    elif page == "kafka":
        writer = names["out"].writeStream.format("noop")
        query = writer.option("checkpointLocation", str(case.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        assert sum(batch.rows_in for batch in hr.progress(query)["per-minute"]) == 3
    else:
        assert ann(case) == {"n": 2, "total": 5.0}


@pytest.fixture
def bucket(case: Case, server: S3Server) -> Iterator[None]:
    """Hosts that know of the server; hosts of other tests are started again."""
    case.kill_hosts()
    yield
    case.kill_hosts()


@pytest.mark.usefixtures("bucket")
def test_the_examples_for_s3_run(case: Case, names: dict[str, Any], spark: SparkSession) -> None:
    run("s3", names, {"my-bucket": f"{BUCKET}/howto"})
    assert not case.state.exists()
    assert [batch.rows_in for batch in names["run"]["totals"]] == [2, 1]
    assert {batch.commit for batch in names["run"]["totals"]} == {"async"}


def run(page: str, names: dict[str, Any], replaced: dict[str, str] | None = None) -> None:
    path = HOWTO / f"{page}.md"
    for block in BLOCK.findall(path.read_text()):
        for old, new in (replaced or {}).items():
            block = block.replace(old, new)
        exec(compile(block, str(path), "exec"), names)


def records(events: DataFrame) -> DataFrame:
    """Rows with the columns of Spark's Kafka source."""
    value = F.to_json(F.struct("user", "amount", F.col("ts").alias("at")))
    columns = [F.col("user").cast("binary").alias("key"), value.cast("binary").alias("value")]
    return events.select(*columns, F.lit(0).alias("partition"), F.lit(0).cast("long").alias("offset"))


def ann(case: Case) -> dict[str, Any]:
    """The state of one user."""
    with headrace.inspect.open(case.checkpoint) as state:
        (row,) = state.table("totals", keys={"user": "ann"}).to_arrow().to_pylist()
    return {name: row[name] for name in ("n", "total")}
