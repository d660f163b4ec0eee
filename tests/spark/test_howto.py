"""Protects the how-to guides: every Python example of them runs, in its order, on a query of two batches.

An example may use `events` (a stream of user, ts, amount), `checkpoint`, `raw` (rows as Kafka has them);
on the pages of `STARTED` also `totals` and its `query`, which has run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from streaming_case import Case

import headrace as hr
import headrace.inspect
from headrace.testing.faults.s3_server import BUCKET

pytestmark = pytest.mark.spark

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(page.stem for page in HOWTO.glob("*.md") if BLOCK.search(page.read_text()))
STARTED = {"memory", "prefetch", "rescaling"}
ELSEWHERE = {"s3", "compaction", "savepoints"}  # their examples name other machines


@pytest.fixture
def names(case: Case) -> dict[str, Any]:
    case.feed(("ann", 0, 1.0), ("bob", 1, 2.0))
    case.feed(("ann", 2, 4.0))
    return {"spark": case.spark, "hr": hr, "events": case.source(), "checkpoint": str(case.checkpoint)}


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
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
def own_hosts(case: Case) -> Iterator[None]:
    """Hosts that know of the test's settings; hosts of other tests are started again."""
    case.kill_hosts()
    yield
    case.kill_hosts()


@pytest.mark.usefixtures("own_hosts")
def test_the_examples_for_compactors_run(case: Case, names: dict[str, Any], tmp_path: Path) -> None:
    """No compactor is there, which costs time only."""
    secret = tmp_path / "compaction.secret"
    secret.write_text("s" * 64)
    secret.chmod(0o600)
    machines = {"10.0.0.7": "127.0.0.1", "10.0.0.8": "127.0.0.1"}
    run("compaction", names, {**machines, "/etc/headrace/compaction.secret": str(secret)})
    case.run(case.totals())
    assert ann(case) == {"n": 2, "total": 5.0}


def test_the_examples_for_savepoints_run(case: Case, names: dict[str, Any], tmp_path: Path) -> None:
    """The query of the page has run when its savepoint is made, and its branch gets one more row."""
    setting, start = blocks(
        "savepoints", {"s3://my-bucket": str(tmp_path), "/data/checkpoints": str(tmp_path)}
    )
    exec(setting, names)
    original = replace(case, checkpoint=tmp_path / "totals")
    original.run(original.totals())
    hr.create_savepoint(str(original.checkpoint), "before-release")
    case.feed(("ann", 3, 8.0))
    exec(start, names | {"totals": case.totals(), "write": lambda rows, _: rows.collect()})
    for query in case.spark.streams.active:
        query.processAllAvailable()
        hr.stop(query)
    assert ann(original) == {"n": 2, "total": 5.0}
    assert ann(replace(case, checkpoint=tmp_path / "trial")) == {"n": 3, "total": 13.0}


@pytest.mark.usefixtures("server", "own_hosts")
def test_the_examples_for_s3_run(case: Case, names: dict[str, Any]) -> None:
    run("s3", names, {"my-bucket": f"{BUCKET}/howto"})
    assert not case.state.exists()
    assert [batch.rows_in for batch in names["run"]["totals"]] == [2, 1]
    assert {batch.commit for batch in names["run"]["totals"]} == {"async"}


def run(page: str, names: dict[str, Any], replaced: dict[str, str] | None = None) -> None:
    for block in blocks(page, replaced or {}):
        exec(block, names)


def blocks(page: str, replaced: dict[str, str]) -> Iterator[CodeType]:
    """The page's examples, with other places."""
    path = HOWTO / f"{page}.md"
    for block in BLOCK.findall(path.read_text()):
        for old, new in replaced.items():
            block = block.replace(old, new)
        yield compile(block, str(path), "exec")


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
