"""Protects what the coordinator is made of: owners, claims of tasks, sums of a batch, places of state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coordinator_fakes import summary

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.coordinator.claims import StageClaims
from headrace.coordinator.operators import state_location
from headrace.coordinator.placing.placement import owner_of
from headrace.coordinator.progress import total
from headrace.errors import QueryError
from headrace.plan.times import TIMES
from headrace.spark.driver.driver import is_local, runs


def test_owner_of() -> None:
    assert owner_of(None, "a", {}, 0) == "a"
    assert owner_of("b", "a", {"b": 0.0}, TIMES.host_lost_s) == "b"
    assert owner_of("b", "a", {"b": 0.0}, TIMES.host_lost_s + 0.1) == "a"
    assert owner_of("b", "a", {}, 0) == "a"


def test_claims_give_the_rest_to_the_last() -> None:
    claims = StageClaims(4)
    assert claims.arrive(10, 1, None) == []
    assert claims.arrive(11, 2, 3) == [3]
    assert claims.arrive(12, 3, None) == []
    assert claims.arrive(13, 4, 1) == [1, 0, 2]
    assert claims.arrive(13, 5, 1) == [1, 0, 2], "a second attempt gets the same answer"
    assert claims.arrive(10, 6, None) == []
    with pytest.raises(QueryError, match="used twice"):
        claims.arrive(14, 7, None)


def test_claims_of_a_coalesced_task() -> None:
    claims = StageClaims(3)
    assert [claims.arrive(0, 1, partition) for partition in (0, None, 2)] == [[0], [], [2, 1]]
    assert [claims.arrive(0, 2, partition) for partition in (0, None, 2)] == [[0], [], [2, 1]]


def test_claims_find_an_operator_used_twice() -> None:
    claims = StageClaims(3)
    claims.arrive(0, 1, 1)
    with pytest.raises(QueryError, match="used twice"):
        claims.arrive(5, 2, 1)


def test_totals() -> None:
    parts = [summary(0, rows_in=3, keys=2, seal_ms=4.0, watermark_ms=7), summary(1, rows_in=4, seal_ms=9.0)]
    sums = total(5, [summary(0, rows_in=99), *parts])
    assert (sums.batch, sums.partitions, sums.rows_in, sums.keys, sums.seal_ms) == (5, 2, 7, 2, 9.0)
    assert sums.watermark_ms == 7


@pytest.mark.parametrize(
    ("configured", "root", "expected"),
    [
        (None, "file:/ck", "/ck/headrace-state"),
        (None, "file:///ck", "/ck/headrace-state"),
        ("/s", "hdfs://x/ck", "/s"),
    ],
)
def test_where_state_lies(configured: str | None, root: str, expected: str) -> None:
    assert state_location(configured, root) == expected


def test_no_default_location_off_the_file_system() -> None:
    with pytest.raises(QueryError, match="hdfs://x/ck"):
        state_location(None, "hdfs://x/ck")


def context(*, jsc: Any, exit_code: int | None = None) -> Any:
    return SimpleNamespace(_jsc=jsc, _gateway=SimpleNamespace(proc=SimpleNamespace(poll=lambda: exit_code)))


def java(stopped: bool) -> Any:
    return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped))


def test_an_application_ends_in_many_ways() -> None:
    assert runs(context(jsc=java(False)))
    assert not runs(context(jsc=java(True))), "stopped by somebody else"
    assert not runs(context(jsc=None)), "stopped from Python"
    assert not runs(context(jsc=java(False), exit_code=-9)), "the JVM was killed"
    assert not runs(context(jsc=SimpleNamespace())), "the JVM does not answer"


def test_local_masters() -> None:
    assert [is_local(m) for m in ("local", "local[2]", "local[*]")] == [True] * 3
    assert [is_local(m) for m in ("local-cluster[2,1,1024]", "spark://h:7077", "yarn")] == [False] * 3


def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    files = LocalFiles(f"file:{tmp_path}")
    assert files.read("f/x.json") is None
    files.write("f/x.json", "1")
    files.write("f/x.json", "2")
    assert files.read("f/x.json") == "2"
    assert [path.name for path in (tmp_path / "f").iterdir()] == ["x.json"]
