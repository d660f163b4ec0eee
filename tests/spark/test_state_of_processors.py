"""Protects the state of processors and dedups as tables: names, types and values are the user's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from streaming_case import Case

import headrace as hr
import headrace.inspect

pytestmark = pytest.mark.spark

MANY = 700  # items of a list, entries of a map: more than a header keeps


class Everything(StatefulProcessor):  # type: ignore[misc]
    """Fills every kind of state; one key has large collections."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "amount double, at timestamp")
        self.seen = handle.getListState("seen", "n int")
        self.squares = handle.getMapState("squares", "n int", "square bigint, label string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.last.update((row.amount, row.ts))
            for n in range(MANY if key[0] == "many" else 2):
                self.seen.appendValue((n,))
                self.squares.updateValue((n,), (n * n, None if n % 2 else "even"))
        self.handle.registerTimer(4_000_000_000_000)
        yield Row(user=key[0])

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def importable() -> Iterator[None]:
    module = sys.modules[__name__]  # workers cannot import test modules
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def test_a_processor_has_a_row_per_key_and_a_column_per_variable(case: Case) -> None:
    case.feed(("few", 1, 1.5), ("many", 2, 2.5))
    grouped = hr.stream(case.source()).name("all").groupBy("user")
    case.run(grouped.transformWithState(Everything(), "user string", "Update", "ProcessingTime"))
    options = {"checkpoint": str(case.checkpoint), "operator": "all"}
    table = case.spark.read.format("headrace").options(**options).load()
    assert table.columns == ["user", "last", "seen", "squares", "timers"]
    assert {f.name: f.dataType.simpleString() for f in table.schema} == {
        "user": "string",
        "last": "struct<amount:double,at:timestamp>",
        "seen": "array<struct<n:int>>",
        "squares": "map<struct<n:int>,struct<square:bigint,label:string>>",
        "timers": "array<timestamp>",
    }
    rows = {row.user: row for row in table.collect()}
    for user, number, amount in (("few", 2, 1.5), ("many", MANY, 2.5)):
        row = rows[user]
        assert row.last == (amount, datetime.fromtimestamp(1 if user == "few" else 2))
        assert [item.n for item in row.seen] == list(range(number))
        expected = {(n,): (n * n, None if n % 2 else "even") for n in range(number)}
        assert {tuple(key): tuple(value) for key, value in row.squares.items()} == expected
        assert row.timers == [datetime.fromtimestamp(4_000_000_000)]
    with headrace.inspect.open(str(case.checkpoint)) as state:
        assert state.table("all").count() == 2
        assert state.table("all", accumulators=True).schema.names == ["user", "cell", "value"]
    assert table.where(F.col("user") == "few").count() == 1


def test_state_of_a_vectorised_function_has_its_columns(case: Case) -> None:
    case.feed(("a", 1, 1.0), ("b", 2, 2.0))

    def update(rows: Any, state: Any) -> Any:
        total = rows.groupby("user", as_index=False).agg(total=("amount", "sum"))
        return total, total

    grouped = hr.stream(case.source()).name("sums").groupBy("user")
    case.run(grouped.updateInPandas(update, "total double", "user string, total double"))
    with headrace.inspect.open(str(case.checkpoint)) as state:
        rows = state.table("sums").to_arrow().to_pylist()
    assert sorted((row["user"], row["state"]["total"]) for row in rows) == [("a", 1.0), ("b", 2.0)]


def test_a_dedup_shows_its_keys_and_their_time(case: Case) -> None:
    case.feed(("a", 7, 1.0), ("a", 8, 2.0), ("b", 9, 2.0))
    timed = hr.stream(case.source()).withWatermark("ts", "1 minute").name("timed")
    case.run(timed.dropDuplicatesWithinWatermark(["user"]))
    with headrace.inspect.open(str(case.checkpoint)) as state:
        rows = state.table("timed").to_arrow().to_pylist()
    assert sorted((row["user"], row["event_time"].timestamp()) for row in rows) == [("a", 7), ("b", 9)]


def test_a_dedup_without_time_shows_its_keys(case: Case) -> None:
    case.feed(("a", 7, 1.0), ("a", 8, 2.0), ("b", 9, 2.0))
    case.run(hr.stream(case.source()).name("keys").dropDuplicates(["user"]))
    with headrace.inspect.open(str(case.checkpoint)) as state:
        assert sorted(state.table("keys").to_arrow().to_pylist(), key=str) == [{"user": "a"}, {"user": "b"}]
