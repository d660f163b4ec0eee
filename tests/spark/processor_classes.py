"""Processors that run unchanged in PySpark's `transformWithState` and in Headrace's."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

OUTPUT = "id string, what string, n long, seen string"
COUNTED = "id string, n long"


class AllStates(StatefulProcessor):
    """Uses value, list and map state, and an event-time timer a minute after each row."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long, last double")
        self.values = handle.getListState("values", "v long")
        self.totals = handle.getMapState("totals", "k string", "v long, s string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n = self.count.get()[0] if self.count.exists() else 0
        for row in rows:
            n += 1
            self._take(row.v)
            self.handle.registerTimer(int(row.ts.timestamp() * 1000) + 60_000)
        self.count.update((n, float(n)))
        yield Row(id=key[0], what="rows", n=n, seen=self._seen())

    def _take(self, v: int) -> None:
        if v % 7 == 0:
            self.values.clear()
        elif v % 5 == 0:
            self.values.put([(v,), (v + 1,)])
        else:
            self.values.appendValue((v,))
        name = (f"k{v % 4}",)
        if v % 11 == 0 and self.totals.containsKey(name):
            self.totals.removeKey(name)
        else:
            old = self.totals.getValue(name)
            self.totals.updateValue(name, ((old.v if old else 0) + v, str(v)))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        if at % 3 == 0:
            self.totals.clear()
        if at % 5 == 0:
            self.count.clear()
        if at % 7 == 0:
            later = max(self.handle.listTimers(), default=at)
            if later > at:
                self.handle.deleteTimer(later)
        yield Row(id=key[0], what="timer", n=at, seen=self._seen())

    def _seen(self) -> str:
        totals = sorted((k[0], v[0], v[1]) for k, v in self.totals.iterator())
        values = [v for (v,) in self.values.get()]
        count = self.count.get()
        timers = sorted(self.handle.listTimers())
        return json.dumps([count, values, totals, timers])

    def close(self) -> None:
        pass


class RunningCount(StatefulProcessor):
    """Exists, get and update per key."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n = sum(1 for _ in rows)
        if self.count.exists():
            n += self.count.get()[0]
        self.count.update((n,))
        yield Row(id=key[0], n=n)

    def close(self) -> None:
        pass


class RunningCountFrames(RunningCount):
    """The same over frames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        n = sum(len(frame) for frame in rows)
        if self.count.exists():
            n += self.count.get()[0]
        self.count.update((n,))
        yield pd.DataFrame({"id": [key[0]], "n": [n]})


class SeededCount(RunningCount):
    """Begins with the sum of the initial state's `start`."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        n = self.count.get()[0] if self.count.exists() else 0
        self.count.update((n + initialState.start,))


class SeededCountFrames(RunningCountFrames):
    """The same over frames."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        n = self.count.get()[0] if self.count.exists() else 0
        self.count.update((n + int(initialState["start"].sum()),))


class Delayed(StatefulProcessor):
    """Counts rows, and emits the count 20 s after each row, just after the watermark."""

    def __init__(self, time: str = "ts", back_ms: int | None = None) -> None:
        self.time, self.back_ms = time, back_ms

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n = self.count.get()[0] if self.count.exists() else 0
        for row in rows:
            n += 1
            at_ms = int(row[self.time].timestamp() * 1000)
            if self.back_ms is not None:
                yield Row(id=key[0], at=_time(at_ms - self.back_ms), n=n)
            else:
                self.handle.registerTimer(at_ms + 20_000)
        self.count.update((n,))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        watermark = timerValues.getCurrentWatermarkInMs()
        yield Row(id=key[0], at=_time(watermark + 1), n=self.count.get()[0])

    def close(self) -> None:
        pass


def _time(at_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)


class Forgetful(StatefulProcessor):
    """A value that lives for 1.5 seconds, and processing-time timers before and after that."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long", 1500)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        self.value.update((1,))
        for later_ms in (1, 3000):
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + later_ms)
        yield Row(id=key[0], what="rows")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(id=key[0], what=f"timer, value {'kept' if self.value.exists() else 'expired'}")

    def close(self) -> None:
        pass
