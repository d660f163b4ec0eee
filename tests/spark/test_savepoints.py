"""Protects savepoints in Spark queries: a query from a savepoint reads no input row twice and skips none,
also with other partitions, of a running query, and after its original is gone. Nothing is copied.

Expected rows are Spark's own counts over the input, or `FOURTH`: what the fourth batch of the case gives.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from streaming_case import FOURTH, Case, Rows, finished_case
from typer.testing import CliRunner

import headrace as hr
import headrace.inspect
from headrace.cli.main import app
from headrace.errors import HeadraceError, QueryError, SettingError
from headrace.format.names import LEASE, leased_through, parse_segment

pytestmark = pytest.mark.spark

LOCATION = "spark.headrace.state.location"
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@pytest.fixture
def state(spark: SparkSession, tmp_path: Path) -> Path:
    """A state location outside of all checkpoints."""
    spark.conf.set(LOCATION, str(tmp_path / "state"))
    return tmp_path / "state"


def savepoint(*arguments: Any) -> str:
    done = CliRunner().invoke(app, ["savepoint", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def started(case: Case, address: str, df: DataFrame | None = None) -> Rows:
    """What a query from a savepoint gives until its input ends."""
    got: Rows = []

    def collect(batch: DataFrame, number: int) -> None:
        got.extend((number, *row) for row in batch.collect())

    writer = (case.totals() if df is None else df).writeStream.foreachBatch(collect)
    writer = writer.option("checkpointLocation", str(case.checkpoint)).trigger(availableNow=True)
    query = hr.start(writer, from_savepoint=address)
    query.awaitTermination()
    hr.stop(query)
    return sorted(got, key=repr)


def query_of(case: Case) -> str:
    return str(json.loads((case.checkpoint / "metadata").read_text())["id"])


def names_in(state: Path, parsed: Callable[[str], object] = parse_segment) -> set[str]:
    return {str(path.relative_to(state)) for path in state.rglob("*") if parsed(path.name)}


def is_compaction(name: str) -> bool:
    """Whether a merge of segments that were there before wrote the file."""
    return leased_through(name) >= LEASE


def newest(rows: Rows) -> dict[str, tuple[int, float]]:
    return {user: (n, total) for _, user, n, total in sorted(rows, key=lambda row: row[0])}


def counted(case: Case) -> dict[str, tuple[int, float]]:
    """Spark's own totals."""
    rows = case.spark.read.parquet(str(case.inputs)).groupBy("user")
    totals = rows.agg(F.count("*"), F.sum("amount")).collect()
    return {user: (n, total) for user, n, total in totals}


@pytest.mark.parametrize(
    ("bridge", "version", "partitions"),
    [
        ("jvm", "1", 3),
        ("jvm", "1", 5),
        ("jvm", "2", 3),
        ("jvm", "2", 2),
        ("python", "1", 3),
        ("python", "1", 4),
    ],
)
def test_a_branch_and_its_original_go_on_apart(
    spark: SparkSession, state: Path, tmp_path: Path, bridge: str, version: str, partitions: int
) -> None:
    spark.conf.set(CHECKPOINT_FORMAT, version)
    spark.conf.set("spark.headrace.bridge", bridge)
    case = finished_case(spark, tmp_path)
    savepoint("create", case.checkpoint, "three")
    before = names_in(state)
    branch = replace(case, checkpoint=tmp_path / "branch")
    spark.conf.set("spark.headrace.partitions", str(partitions))
    assert started(branch, f"{case.checkpoint}#three") == FOURTH
    assert query_of(branch) != query_of(case)
    written = names_in(state) - before
    assert before <= names_in(state)
    assert all("-v" in f"-{Path(name).name}" and name.startswith(query_of(branch)) for name in written)
    changed = [name for name in written if not is_compaction(name)]
    assert all("v000000000003" in name for name in changed), "only what the fourth batch changed"
    spark.conf.set("spark.headrace.partitions", "3")
    assert case.run(case.totals()) == FOURTH
    branch.feed(("a", 40, 1.0), ("f", 41, 2.0))
    spark.conf.set("spark.headrace.partitions", str(partitions))
    fifth = [(4, "a", 5, 3.75), (4, "f", 1, 2.0)]
    assert started(branch, f"{case.checkpoint}#three") == fifth, "a second start goes on"
    spark.conf.set("spark.headrace.partitions", "3")
    assert case.run(case.totals()) == fifth
    with headrace.inspect.open(str(branch.checkpoint)) as opened:
        table = opened.table("totals").to_pandas()
        assert {row.user: (row.n, row.total) for row in table.itertuples()} == counted(case)


def test_a_branch_survives_its_original_and_its_savepoint(
    spark: SparkSession, state: Path, tmp_path: Path
) -> None:
    case = finished_case(spark, tmp_path)
    hr.create_savepoint(str(case.checkpoint), "three")
    branch = replace(case, checkpoint=tmp_path / "branch")
    assert started(branch, f"{case.checkpoint}#three") == FOURTH
    original = query_of(case)
    drop(case.checkpoint)
    shutil.rmtree(case.checkpoint)
    assert [row["name"] for row in hr.savepoints(str(state))] == ["three"]
    savepoint("delete", state, "three")
    named = names_in(state / original)
    assert named, "the branch names files of the original"
    branch.feed(("a", 40, 1.0))
    assert branch.run(branch.totals()) == [(4, "a", 5, 3.75)]
    spark.conf.set("spark.headrace.state.retain", "1")
    for number in range(5, 30):
        branch.feed(*((user, 10 * number, 1.0) for user in "abcdef"))
    got = newest(branch.run(branch.totals()))
    assert {user: got[user] for user in "abcdef"} == {user: counted(case)[user] for user in "abcdef"}
    drop(branch.checkpoint)
    assert not [path for path in state.rglob("*") if path.is_file()]


def drop(place: Any) -> None:
    done = CliRunner().invoke(app, ["state", "drop", str(place), "--yes"])
    assert done.exit_code == 0, done.output


def test_a_savepoint_of_a_running_query(spark: SparkSession, state: Path, tmp_path: Path) -> None:
    """In async mode the state of the last committed batch may be on its way to shared storage."""
    spark.conf.set("spark.headrace.commit", "async")
    case = Case(spark, tmp_path / "in", tmp_path / "ck")
    case.feed(("a", 0, 1.0))
    writer = case.totals().writeStream.option("checkpointLocation", str(case.checkpoint))
    query = hr.start(writer.foreachBatch(lambda batch, _: batch.count()))
    addresses = []
    try:
        for number in range(1, 7):
            case.feed(*((user, number, 1.0) for user in "abcdefgh"[: number + 1]))
            if number % 2 == 0:
                addresses.append(hr.create_savepoint(str(case.checkpoint), f"at-{number}"))
            query.processAllAvailable()
    finally:
        hr.stop(query)
    for number, address in enumerate(addresses):
        branch = replace(case, checkpoint=tmp_path / f"branch-{number}")
        started(branch, address)
        with headrace.inspect.open(str(branch.checkpoint)) as opened:
            table = opened.table("totals").to_pandas()
        assert {row.user: (row.n, row.total) for row in table.itertuples()} == counted(case)


def test_a_branch_of_a_branch_that_has_not_run(spark: SparkSession, state: Path, tmp_path: Path) -> None:
    case = finished_case(spark, tmp_path)
    savepoint("create", case.checkpoint, "three")
    first = replace(case, checkpoint=tmp_path / "first")

    def fail(batch: DataFrame, number: int) -> None:
        batch.collect()
        raise RuntimeError("the sink is full")

    writer = first.totals().writeStream.option("checkpointLocation", str(first.checkpoint))
    query = hr.start(writer.foreachBatch(fail).trigger(availableNow=True), f"{case.checkpoint}#three")
    with pytest.raises(Exception, match="the sink is full"):
        query.awaitTermination()
    savepoint("create", first.checkpoint, "again")
    assert started(first, f"{case.checkpoint}#three") == FOURTH, "the batch that failed is repeated"
    second = replace(case, checkpoint=tmp_path / "second")
    assert started(second, f"{first.checkpoint}#again") == FOURTH


def test_refusals_come_before_anything_is_written(spark: SparkSession, state: Path, tmp_path: Path) -> None:
    case = finished_case(spark, tmp_path)
    savepoint("create", case.checkpoint, "three")
    again = CliRunner().invoke(app, ["savepoint", "create", str(case.checkpoint), "three"])
    assert (again.exit_code, "has a savepoint three already" in again.output) == (1, True)
    branch = replace(case, checkpoint=tmp_path / "branch")
    files = sorted(path for path in state.rglob("*") if path.is_file())
    with pytest.raises(QueryError, match="its savepoints are three"):
        started(branch, f"{case.checkpoint}#four")
    with pytest.raises(QueryError, match="names no savepoint"):
        started(branch, str(case.checkpoint))
    with pytest.raises(HeadraceError, match="is not the one that wrote its state"):
        started(branch, f"{case.checkpoint}#three", branch.totals(most=hr.max("amount")))
    spark.conf.set(LOCATION, str(tmp_path / "elsewhere"))
    with pytest.raises(SettingError, match=f"set spark.headrace.state.location to {state}"):
        started(branch, f"{case.checkpoint}#three")
    spark.conf.set(LOCATION, str(state))
    with pytest.raises(QueryError, match="is that of another query"):
        started(case, f"{case.checkpoint}#three")
    assert not branch.checkpoint.exists()
    assert sorted(path for path in state.rglob("*") if path.is_file()) == files


def test_state_inside_of_the_checkpoint_is_refused(copy: Case) -> None:
    done = CliRunner().invoke(app, ["savepoint", "create", str(copy.checkpoint), "three"])
    assert done.exit_code == 1
    assert "is inside of the checkpoint" in done.output
    assert "spark.headrace.state.location" in done.output
