"""Protects `applyInPandasWithState`: functions written for PySpark give the same rows in both engines, with
state, removal, timeouts and the same errors for the same misuse."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor_case import FAR, SCHEMA, prepared, random_batches, run, write_batches
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.errors import QueryError

pytestmark = pytest.mark.spark

OUTPUT = "id string, what string, n long, seen string"
STATE = "n long, last timestamp, note string"
DEADLINE_S = 60


@pytest.fixture(autouse=True)
def engines(spark: SparkSession) -> Iterator[None]:
    with prepared(spark, sys.modules[__name__], empty_batches=True):
        yield


def follow(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    """Counts rows; what it does with state and timeout depends on the values."""
    import pandas as pd

    if state.hasTimedOut:
        empty = [list(frame.columns) for frame in frames]
        n = state.get[0] if state.exists else -1
        if n % 3 == 0:
            state.remove()
        elif n % 3 == 1:
            state.update((n + 100, None, "late"))
        yield pd.DataFrame(
            {"id": [key[0]], "what": ["timeout"], "n": [n], "seen": [json.dumps([empty, str(state)])]}
        )
        return
    before = state.getOption
    rows = pd.concat(list(frames))
    n = (before[0] if before else 0) + len(rows)
    largest, last = int(rows.v.max()), rows.ts.max()
    if largest % 5 == 0:
        state.remove()
    elif largest % 7:
        state.update((n, last, f"v{largest}"))
    if largest % 2 == 0:
        state.setTimeoutTimestamp(int(last.timestamp() * 1000) + 20_000)
    seen = [str(before), str(rows.v.dtype), type(key[0]).__name__, state.getCurrentWatermarkMs()]
    yield pd.DataFrame({"id": [key[0]], "what": ["rows"], "n": [n], "seen": [json.dumps(seen)]})


@pytest.mark.parametrize("seed", [31, 32])
def test_states_and_event_time_timeouts_are_sparks(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    batches = random_batches(seed)
    batches[1].append({"id": "u1", "v": 8, "ts": "2030-01-01T00:02:00Z"})
    rows: dict[str, Any] = {}
    for first, part in ((0, batches[:3]), (3, batches[3:])):  # a restart in between
        write_batches(tmp_path / "in", part, first)
        for name, keyed in (("ours", hr.stream), ("theirs", lambda df: df)):
            got = run(
                spark,
                tmp_path,
                name,
                lambda df, keyed=keyed: (
                    keyed(df.withWatermark("ts", "10 seconds"))
                    .groupBy("id")
                    .applyInPandasWithState(follow, OUTPUT, STATE, "Update", "EventTimeTimeout")
                ),
            )
            rows[name] = rows[name] + got if name in rows else got
    assert {row[1] for row in rows["ours"]} == {"rows", "timeout"}
    assert rows["ours"] == rows["theirs"]


def count_by_number(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    rows = pd.concat(list(frames))
    n = (state.get[0] if state.exists else 0) + len(rows)
    state.update((n,))
    kinds = [type(part).__name__ for part in key]
    yield pd.DataFrame({"seen": [json.dumps([str(key), kinds, str(rows.v.dtype)])], "n": [n]})


def test_keys_and_numbers_are_shown_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    times = ["2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z"]
    rows = [{"id": name, "v": v, "ts": ts} for name in ("a", None) for v in (1, None) for ts in times]
    write_batches(tmp_path / "in", [rows, rows[:3]])

    def stream(keyed: Any) -> Any:
        return lambda df: (
            keyed(df)
            .groupBy("v", "ts", "id")
            .applyInPandasWithState(count_by_number, "seen string, n long", "n long", "Append", "NoTimeout")
        )

    ours = run(spark, tmp_path, "ours", stream(hr.stream), "append")
    assert len(ours) > 8
    assert ours == run(spark, tmp_path, "theirs", stream(lambda df: df), "append")


def forget(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    what = "timeout" if state.hasTimedOut else "rows"
    if state.hasTimedOut:
        state.remove()
    else:
        state.update((1,))
        state.setTimeoutDuration(300)
    yield pd.DataFrame({"id": [key[0]], "what": [what]})


def test_processing_time_timeouts_come_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [[{"id": "a", "v": 1, "ts": FAR}, {"id": "b", "v": 1, "ts": FAR}]])
    rows: list[tuple[Any, ...]] = []

    def collect(batch: DataFrame, number: int) -> None:
        rows.extend((number, *row) for row in batch.collect())

    source = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
    results = (
        hr.stream(source)
        .groupBy("id")
        .applyInPandasWithState(
            forget, "id string, what string", "n long", "Update", "ProcessingTimeTimeout"
        )
    )
    query = (
        results.writeStream.foreachBatch(collect)
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "ck"))
        .start()
    )
    try:
        until = time.monotonic() + DEADLINE_S
        while len(rows) < 4 and time.monotonic() < until and query.isActive:
            time.sleep(0.05)
    finally:
        query.stop()
    assert sorted(rows[:2]) == [(0, "a", "rows"), (0, "b", "rows")]
    assert sorted(row[1:] for row in rows[2:]) == [("a", "timeout"), ("b", "timeout")]
    assert rows[2][0] > 0


def misused(kind: str) -> Any:
    def call(key: Any, frames: Any, state: Any) -> Any:
        import pandas as pd

        match kind:
            case "duration":
                state.setTimeoutDuration(5)
            case "absent":
                _ = state.get
            case "watermark":
                state.getCurrentWatermarkMs()
            case "none":
                state.update(None)
            case "frame":
                return pd.DataFrame({"id": ["a"], "n": [1]})
            case "width":
                return [pd.DataFrame({"id": ["a"]})]
            case "number":
                return [5]
        return []

    return call


@pytest.mark.parametrize("kind", ["duration", "absent", "watermark", "none", "frame", "width", "number"])
def test_misuse_fails_with_sparks_error(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    write_batches(tmp_path / "in", [[{"id": "a", "v": 1, "ts": FAR}]])
    errors = []
    for name, keyed in (("ours", hr.stream), ("theirs", lambda df: df)):
        with pytest.raises(StreamingQueryException) as failed:
            run(
                spark,
                tmp_path,
                name,
                lambda df, keyed=keyed: (
                    keyed(df)
                    .groupBy("id")
                    .applyInPandasWithState(
                        misused(kind), "id string, n long", "n long", "Update", "NoTimeout"
                    )
                ),
            )
        errors.append(next(line for line in str(failed.value).splitlines() if "Error: [" in line))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("timeout", "mode", "message"),
    [("Never", "Update", "timeoutConf='Never'"), ("NoTimeout", "Complete", "outputMode Complete")],
)
def test_what_does_not_fit_is_refused(spark: SparkSession, timeout: str, mode: str, message: str) -> None:
    source = spark.readStream.format("rate").load().selectExpr("'a' AS id", "value AS v")
    with pytest.raises(QueryError, match=message):
        hr.stream(source).groupBy("id").applyInPandasWithState(forget, "id string", "n long", mode, timeout)
