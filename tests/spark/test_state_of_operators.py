"""Protects the state of operators as a table. While the query commits, a reader in a loop sees rows
of the model at some version and nothing in between. Afterwards Spark reads versions, and what changed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
import state_operators
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from state_operators import OPERATORS, Operator, Table
from streaming_case import Case, Event

import headrace.inspect

pytestmark = pytest.mark.spark

BATCHES: list[list[Event]] = [
    [("ann", 1, 1.0), ("bob", 2, 2.0), ("eve", 3, 3.0)],
    [("ann", 4, 4.0), ("bob", 14, 0.5)],
    [("ann", 9, 2.5), ("zoe", 21, 1.5)],
    [("bob", 33, 8.0)],
]
SHORT = 6  # each sixth kind of operator is also in the short run


@pytest.fixture(autouse=True)
def importable() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(state_operators)  # workers cannot import test modules
    yield
    cloudpickle.unregister_pickle_by_value(state_operators)


class Reader(threading.Thread):
    """Reads the newest version again and again until it is stopped."""

    def __init__(self, case: Case, columns: str) -> None:
        super().__init__()
        self._case, self._columns, self.done = case, columns, threading.Event()
        self.seen: list[tuple[int, Table]] = []
        self.problems: list[BaseException] = []

    def run(self) -> None:
        while not self.done.is_set():
            try:
                with headrace.inspect.open(self._case.checkpoint) as state:
                    table = state.table("op")
                    self.seen.append((table.version, selected(table.to_arrow(), self._columns)))
            except BaseException as problem:
                self.problems.append(problem)
                return


def selected(table: pa.Table, columns: str) -> Table:
    """Columns of a table as plain values."""
    rows = table.to_pylist()
    return Counter(tuple(at(row, name.split(".")) for name in columns.split(", ")) for row in rows)


def at(row: Any, path: list[str]) -> Any:
    for name in path:
        row = row[name]
    return value_of(row)


def value_of(value: Any) -> Any:
    """Instants as seconds, windows as pairs of them."""
    if isinstance(value, dict):
        return tuple(value_of(part) for part in value.values())
    if isinstance(value, Row):
        return tuple(value_of(part) for part in value)
    return round(value.timestamp()) if isinstance(value, datetime) else value


def in_spark(df: DataFrame, columns: str) -> Table:
    return Counter(tuple(map(value_of, row)) for row in df.selectExpr(*columns.split(", ")).collect())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if at % SHORT == 0 else pytest.mark.long)
        for at, name in enumerate(OPERATORS)
    ],
)
def test_every_version_is_the_models_while_the_query_commits(case: Case, name: str) -> None:
    operator = OPERATORS[name]
    case.spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    reader, expected = Reader(case, operator.columns), dict[int, Table]()
    try:
        for number, events in enumerate(BATCHES):
            case.feed(*events)
            case.run(operator.build(case))
            with headrace.inspect.open(case.checkpoint) as state:
                versions = state.versions("op")
            now = Counter(operator.rows([event for batch in BATCHES[: number + 1] for event in batch]))
            expected |= {version: now for version in versions if version not in expected}
            if number == 0:
                reader.start()
    finally:
        reader.done.set()
        if reader.ident is not None:
            reader.join()
    assert reader.problems == []
    assert reader.seen
    for version, rows in reader.seen:
        assert rows == expected[version], f"version {version}, read beside the query"
    check_in_spark(case, operator, expected)


def check_in_spark(case: Case, operator: Operator, expected: dict[int, Table]) -> None:
    options = {"checkpoint": str(case.checkpoint), "operator": "op"}
    source = case.spark.read.format("headrace").options(**options)
    first, *_, last = expected
    with headrace.inspect.open(case.checkpoint) as state:
        for version, rows in expected.items():
            table = state.table("op", version=version).to_arrow()
            assert selected(table, operator.columns) == rows, f"version {version}"
    older = case.spark.read.format("headrace").options(**options, versionAsOf=str(first)).load()
    assert in_spark(older, operator.columns) == expected[first]
    if operator.columns.startswith("user"):
        mine = Counter({row: n for row, n in expected[last].items() if row[0] == "ann"})
        assert in_spark(source.load().where("user = 'ann'"), operator.columns) == mine
    changes = source.option("changesFrom", first).option("changesTo", last).load()
    check_changes(
        operator, in_spark(changes, f"change, {operator.columns}"), expected[first], expected[last]
    )


def check_changes(operator: Operator, changes: Table, before: Table, after: Table) -> None:
    kinds = {
        kind: Counter({row[1:]: n for row, n in changes.items() if row[0] == kind})
        for kind in ("insert", "update", "delete")
    }
    if not operator.ids:
        assert (kinds["insert"], kinds["delete"]) == (after - before, before - after)
        return
    old, new = ({identity(row, operator.ids): row for row in version} for version in (before, after))
    assert set(kinds["insert"]) == {new[one] for one in new.keys() - old.keys()}
    assert set(kinds["delete"]) == {old[one] for one in old.keys() - new.keys()}
    assert set(kinds["update"]) == {new[one] for one in new.keys() & old.keys() if new[one] != old[one]}


def identity(row: tuple[Any, ...], ids: int) -> tuple[Any, ...]:
    """The columns that identify a row: of a window its start, because the end of a session moves."""
    return tuple(value[0] if isinstance(value, tuple) else value for value in row[:ids])
