"""Processors for the corners of PySpark's behaviour; they report what they see as text."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

SEEN = "id string, what string, seen string"
EPOCH_MS = 1_893_456_000_000  # 2030-01-01


ODD = (
    "d double, i int, l long, s string, b boolean, bin binary, t timestamp, day date, "
    "a array<int>, m map<string,long>, st struct<x:int,y:string>, dec decimal(5,2), f float, sh short"
)
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
VALUES: tuple[tuple[Any, ...], ...] = (
    (1, 3, True, "x", True),  # in a double
    (2**31, -(2**31) - 1, 1.5, None, "7"),  # in an int
    (2**63 - 1, -5, 2.0, None, "8"),  # in a long
    (5, True, 1.5, None, "text"),  # in a string
    (True, 1, None, False, "true"),  # in a boolean
    (b"ab", bytearray(b"cd"), "text", None, b""),  # in binary
    (NOON, None, NOON.replace(tzinfo=dt.UTC), NOON, None),
    (NOON.date(), None, NOON.date(), None, NOON.date()),
    ([1, 2**31, None], [], None, (4, 5), [7]),
    ({"a": 1, "b": None}, {}, None, {"c": 2}, None),
    ((1, "one"), None, (None, None), (2, 3), (4, None)),
    (decimal.Decimal("1.255"), decimal.Decimal("999.994"), None, decimal.Decimal(-1), decimal.Decimal("0")),
    (0.1, 1, None, float("inf"), -0.0),
    (40_000, 7, None, -40_000, 1),
)


class Odd(StatefulProcessor):
    """Stores values that do not fit their columns; reports each field in the same call and in the next."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", ODD)
        self.values = handle.getListState("values", ODD)
        self.by_name = handle.getMapState("by_name", "k string, n int", ODD)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        yield from self._seen(key, "before")
        for row in rows:
            written = tuple(pool[row.v % len(pool)] for pool in VALUES)
            self.value.update(written)
            self.values.put([written])
            self.by_name.updateValue((row.v % 2, 2**31 + row.v % 2), written)
            kinds = (isinstance(row, Row), row.ts.tzinfo is not None, type(key).__name__)
            yield Row(id=key[0], what="kinds", seen=str(kinds))
            yield from self._seen(key, f"row {row.v % len(VALUES[0])}")

    def _seen(self, key: Any, when: str) -> Iterator[Row]:
        for name, value in self._contents():
            fields = [None] * len(VALUES) if value is None else value
            for at, field in enumerate(fields):
                yield Row(id=key[0], what=f"{when} {name} {at}", seen=f"{type(value).__name__} {field!r}")

    def _contents(self) -> Iterator[tuple[str, Any]]:
        yield "value", self.value.get()
        yield from (("item", item) for item in self.values.get())
        yield from ((f"entry {key}", value) for key, value in self.by_name.iterator())
        yield "named", self.by_name.getValue(("1", -(2**31) + 1))

    def close(self) -> None:
        pass


class Corners(StatefulProcessor):
    """Iterators over changing state, timers that change timers, results with other fields."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long")
        self.values = handle.getListState("values", "v long")
        self.counts = handle.getMapState("counts", "k long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield from self._rows(key, row)
        self.value.update((None,))
        seen = (self.value.exists(), self.value.get(), timerValues.getCurrentWatermarkInMs())
        yield Row(id=str(key[0]), what="null", seen=str(seen), extra=1)

    def _rows(self, key: Any, row: Any) -> Iterator[Row]:
        self.values.appendList([(row.v,), (row.v + 1,)])
        values, keys = self.values.get(), self.counts.iterator()
        self.counts.updateValue((row.v % 5,), (row.v,))
        first = [next(values), next(keys)[0] in {(n,) for n in range(5)}]
        self.values.put([(row.v * 2,)])
        self.counts.removeKey((row.v % 5,))
        rest = [*values, self.counts.exists(), self.counts.containsKey((row.v % 5,))]
        at = int(row.ts.timestamp() * 1000)
        self.handle.registerTimer(at + 1000 * (row.v % 7))
        self.handle.registerTimer(at + 1000 * (row.v % 7))
        if row.v % 4 == 0:
            self.handle.registerTimer(EPOCH_MS - row.v)  # in the past
        yield Row(what="row", seen=str([first, rest, sorted(self.handle.listTimers())]))  # no id

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        timers = sorted(self.handle.listTimers())
        if at % 2:
            self.handle.registerTimer(at)  # its own time: lost
        if at % 3 == 0 and timers and timers[-1] > at:
            self.handle.deleteTimer(timers[-1])
        if at % 5 == 0:
            self.handle.registerTimer(at - 100_000)  # in the past: the next batch
        seen = [type(key).__name__, key.asDict(), timers, list(self.values.get())]
        yield Row(id=str(key[0]), what=f"timer {at}", seen=str(seen))

    def close(self) -> None:
        pass


class Informed(StatefulProcessor):
    """Reports the query and the batch that it runs in."""

    def init(self, handle: Any) -> None:
        self.info = handle.getQueryInfo()

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        run, batch = self.info.getRunId(), self.info.getBatchId()
        yield Row(id=str(self.info.getQueryId()), what=str(batch), seen=str(run))

    def close(self) -> None:
        pass


class Fading(StatefulProcessor):
    """Values that live for a millisecond, so never in the next batch, beside values that live for a day."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.kinds = [self._states(handle, name, ms) for name, ms in (("soon", 1), ("late", 86_400_000))]

    def _states(self, handle: Any, name: str, ms: int) -> tuple[Any, Any, Any]:
        return (
            handle.getValueState(f"{name}_value", "v long", ms),
            handle.getListState(f"{name}_list", "v long", ms),
            handle.getMapState(f"{name}_map", "k long", "v long", ms),
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        yield Row(id=key[0], what="before", seen=self._seen())
        for row in rows:
            for value, values, entries in self.kinds:
                if row.v % 3:
                    value.update((row.v,))
                if row.v % 2:
                    values.appendValue((row.v,))
                entries.updateValue((row.v % 4,), (row.v,))
                if row.v % 5 == 0:
                    entries.removeKey((1,))
        yield Row(id=key[0], what="after", seen=self._seen())

    def _seen(self) -> str:
        return str(
            [
                (value.exists(), value.get(), list(values.get()), sorted(map(tuple, entries.iterator())))
                for value, values, entries in self.kinds
            ]
        )

    def close(self) -> None:
        pass
