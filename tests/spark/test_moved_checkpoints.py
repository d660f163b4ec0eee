"""Protects: state belongs to one checkpoint. A moved checkpoint goes on, a copy never shares state.

Expected rows are `FOURTH`: what the case's fourth batch gives after its first three.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streaming_case import FOURTH, Case, Rows, finished_case
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.errors import HeadraceError

pytestmark = pytest.mark.spark

LOCATION = "spark.headrace.state.location"


@pytest.fixture
def set_conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    yield spark.conf.set
    spark.conf.unset(LOCATION)


@pytest.fixture
def apart(spark: SparkSession, set_conf: Callable[[str, str], None], tmp_path: Path) -> Case:
    """A query whose state is outside of its checkpoint."""
    set_conf(LOCATION, str(tmp_path / "state"))
    return finished_case(spark, tmp_path)


def branched(case: Case, to: Path) -> Case:
    made = CliRunner().invoke(app, ["state", "branch", str(case.checkpoint), str(to)])
    assert made.exit_code == 0, made.output
    return replace(case, checkpoint=to)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_moved_checkpoint_goes_on(copy: Case, tmp_path: Path) -> None:
    moved = replace(copy, checkpoint=copy.checkpoint.rename(tmp_path / "moved"))
    assert moved.run(moved.totals()) == FOURTH


def test_a_copy_with_its_state_is_a_query_of_its_own(copy: Case, tmp_path: Path) -> None:
    other = copy.copied(tmp_path / "other")
    before = files_of(copy.checkpoint)
    assert other.run(other.totals()) == FOURTH
    assert files_of(copy.checkpoint) == before
    assert copy.run(copy.totals()) == FOURTH


def test_a_moved_checkpoint_goes_on_with_state_outside_of_it(apart: Case, tmp_path: Path) -> None:
    moved = replace(apart, checkpoint=apart.checkpoint.rename(tmp_path / "moved"))
    assert moved.run(moved.totals()) == FOURTH
    moved.feed(("a", 40, 1.0))
    assert moved.run(moved.totals()) == [(4, "a", 5, 3.75)], "it is the owner now"


def test_state_moves_with_its_checkpoint(
    apart: Case, set_conf: Callable[[str, str], None], tmp_path: Path
) -> None:
    (tmp_path / "state").rename(tmp_path / "new-state")
    set_conf(LOCATION, str(tmp_path / "new-state"))
    moved = replace(apart, checkpoint=apart.checkpoint.rename(tmp_path / "moved"))
    got: Rows = []

    def collect(batch, number):  # type: ignore[no-untyped-def]
        got.extend((number, *row) for row in batch.collect())

    writer = moved.totals().writeStream.option("checkpointLocation", str(moved.checkpoint))
    hr.start(writer.foreachBatch(collect).trigger(availableNow=True)).awaitTermination()
    assert sorted(got) == FOURTH


def test_a_copy_is_refused_and_a_branch_is_not(apart: Case, tmp_path: Path) -> None:
    """The copy once went on with the original's state: both counted each other's rows."""
    leases = shutil.ignore_patterns("headrace-lease*")  # one may go in the middle of the copy
    shutil.copytree(apart.checkpoint, tmp_path / "copy", ignore=leases)
    copy, before = replace(apart, checkpoint=tmp_path / "copy"), files_of(tmp_path / "state")
    refusal = copy.refusal(copy.totals())
    assert f"is a copy of file:{apart.checkpoint}" in refusal
    assert f"headrace savepoint create file:{apart.checkpoint} <name>" in refusal
    assert f'from_savepoint="file:{apart.checkpoint}#<name>"' in refusal
    writer = copy.totals().writeStream.option("checkpointLocation", str(copy.checkpoint))
    with pytest.raises(HeadraceError, match="is a copy of"):
        hr.start(writer.format("noop"))
    assert files_of(tmp_path / "state") == before
    branch = branched(apart, tmp_path / "branch")
    assert branch.run(branch.totals()) == FOURTH
    assert apart.run(apart.totals()) == FOURTH
    branch.feed(("a", 40, 1.0))
    assert branch.run(branch.totals()) == apart.run(apart.totals()) == [(4, "a", 5, 3.75)]


def test_a_branch_has_its_state_inside_where_the_original_has(copy: Case, tmp_path: Path) -> None:
    before = files_of(copy.checkpoint)
    branch = branched(copy, tmp_path / "branch")
    assert files_of(copy.checkpoint) == before
    assert branch.run(branch.totals()) == FOURTH
    assert list((tmp_path / "branch").glob("headrace-state/*/totals"))
    again = CliRunner().invoke(app, ["state", "branch", str(copy.checkpoint), str(branch.checkpoint)])
    assert (again.exit_code, "is there already" in again.output) == (1, True)
