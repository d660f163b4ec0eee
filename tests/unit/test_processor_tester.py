"""Protects state variables and timers: against plain dicts and lists under Hypothesis over several
batches, with chunks, buckets, time to live and timers. The harness for users runs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processor_model import Model
from pyspark.sql import Row
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.errors import QueryError
from headrace.spark.processors import states
from headrace.spark.processors.ddl import struct_of
from headrace.spark.processors.tester import ProcessorTester

ROWS, OUT = "id long, what string, k long, v long", "id long, seen string"
WHATS = ("value", "append", "put", "clear list", "update", "remove", "clear map", "clear value")


class Everything(StatefulProcessor):
    """Applies one change to one state per row."""

    def init(self, handle: Any) -> None:
        self.last = handle.getValueState("last", "v long")
        self.items = handle.getListState("items", "v long")
        self.entries = handle.getMapState("entries", "k long", "v long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self._change(row)
        yield Row(id=key[0], seen=str(self.seen()))

    def _change(self, row: Any) -> None:
        match row.what:
            case "value":
                self.last.update((row.v,))
            case "append":
                self.items.appendValue((row.v,))
            case "put":
                self.items.put([(row.v,), (row.k,)])
            case "clear list":
                self.items.clear()
            case "update":
                self.entries.updateValue((row.k,), (row.v,))
            case "remove":
                self.entries.removeKey((row.k,))
            case "clear map":
                self.entries.clear()
            case _:
                self.last.clear()

    def seen(self) -> Any:
        entries = sorted((k[0], v[0]) for k, v in self.entries.iterator())
        return self.last.get(), [v for (v,) in self.items.get()], entries, self.entries.exists()

    def close(self) -> None:
        pass


def seen(model: Model) -> Any:
    return model.last, model.items, sorted(model.entries.items()), bool(model.entries)


rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2),
        "what": st.sampled_from([*WHATS, *["append", "update"] * 4]),
        "k": st.integers(0, 40),
        "v": st.integers(-5, 5),
    }
)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "LIST_CHUNK", 3)
    monkeypatch.setattr(states, "MAP_BUCKET", 4)


@settings(deadline=None, max_examples=60)
@given(batches=st.lists(st.lists(rows, max_size=60), max_size=4))
def test_state_is_the_models(batches: list[list[dict[str, Any]]]) -> None:
    tester, models = ProcessorTester(Everything(), ROWS, "id", OUT), {}
    for batch in batches:
        for row in batch:
            models.setdefault(row["id"], Model()).change(row)
        touched = {row["id"] for row in batch}
        expected = sorted((key, str(seen(models[key]))) for key in touched)
        assert sorted((row.id, row.seen) for row in tester.batch(batch)) == expected
    for key, model in models.items():
        assert tester.value("last", key) == model.last
        assert [v for (v,) in tester.items("items", key)] == model.items


class Expiring(StatefulProcessor):
    """A value, a list and a map with a time to live, and a timer per row."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "v long", 100)
        self.items = handle.getListState("items", "v long", 100)
        self.entries = handle.getMapState("entries", "k long", "v long", 100)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.last.update((row.v,))
            self.items.appendValue((row.v,))
            self.entries.updateValue((row.k,), (row.v,))
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + row.k)
        yield Row(id=key[0], seen="rows")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(id=key[0], seen=f"timer {expiredTimerInfo.getExpiryTimeInMs()}")

    def close(self) -> None:
        pass


def row(key: int, k: int, v: int) -> dict[str, Any]:
    return {"id": key, "what": "", "k": k, "v": v}


def test_values_expire_and_are_removed_without_being_touched() -> None:
    tester = ProcessorTester(Expiring(), ROWS, "id", OUT, "ProcessingTime")
    tester.batch([row(1, 500, 7)], processing_time_ms=1000)
    tester.batch([row(1, 501, 8)], processing_time_ms=1050)
    assert tester.items("items", 1, at_ms=1099) == [(7,), (8,)]
    assert tester.items("items", 1, at_ms=1100) == [(8,)]
    tester.batch([], processing_time_ms=1149)
    assert tester.entries("entries", 1, at_ms=0) == {(501,): (8,)}, "the expired entry is gone for good"
    tester.batch([], processing_time_ms=1150)
    assert tester.value("last", 1) is None
    assert tester.timers(1) == [1500, 1551]


def test_timers_fire_in_the_order_of_time_once() -> None:
    tester = ProcessorTester(Expiring(), ROWS, "id", OUT, "ProcessingTime")
    tester.batch([row(1, 30, 1), row(2, 10, 1), row(1, 20, 1)], processing_time_ms=1000)
    fired = tester.batch([], processing_time_ms=1030)
    assert [(one.id, one.seen) for one in fired] == [
        (2, "timer 1010"),
        (1, "timer 1020"),
        (1, "timer 1030"),
    ]
    assert tester.batch([], processing_time_ms=2000) == []


def test_misuse_is_refused_by_name() -> None:
    with pytest.raises(Exception, match="INCORRECT_TIME_MODE_TO_ASSIGN_TTL"):
        ProcessorTester(Expiring(), ROWS, "id", OUT, "None")
    with pytest.raises(QueryError, match="no state 'other'"):
        ProcessorTester(Everything(), ROWS, "id", OUT).value("other", 1)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a int", T.StructType([T.StructField("a", T.IntegerType())])),
        (
            "a decimal(10,2), b array<map<string,long>>",
            T.StructType(
                [
                    T.StructField("a", T.DecimalType(10, 2)),
                    T.StructField("b", T.ArrayType(T.MapType(T.StringType(), T.LongType()))),
                ]
            ),
        ),
        (
            "s struct<x:int, y: string> not null",
            T.StructType(
                [
                    T.StructField(
                        "s",
                        T.StructType(
                            [T.StructField("x", T.IntegerType()), T.StructField("y", T.StringType())]
                        ),
                        False,
                    )
                ]
            ),
        ),
    ],
)
def test_schemas_in_text_are_sparks(text: str, kind: T.StructType) -> None:
    assert struct_of(text) == kind


@pytest.mark.parametrize("text", ["", "a", "a nothing", "a array<int"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(QueryError):
        struct_of(text)
