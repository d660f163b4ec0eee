"""An asynchronous processor, and its twin for PySpark's own engine, which takes one row after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import headrace as hr

OUTPUT = "id string, what string, n long, seen string"


class Twin(StatefulProcessor):
    """All state types and timers, row by row."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.values = handle.getListState("values", "v long")
        self.totals = handle.getMapState("totals", "k string", "v long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            n = (self.count.get()[0] if self.count.exists() else 0) + 1
            self.count.update((n,))
            self.values.appendValue((row.v,))
            before = self.totals.getValue((f"k{row.v % 4}",))
            self.totals.updateValue((f"k{row.v % 4}",), ((before.v if before else 0) + row.v,))
            self.handle.registerTimer(int(row.ts.timestamp() * 1000) + 60_000)
            yield Row(id=key[0], what="row", n=n, seen=self._seen())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        if at % 3 == 0:
            self.totals.clear()
        yield Row(id=key[0], what="timer", n=at, seen=self._seen())

    def _seen(self) -> str:
        totals = sorted((k[0], v[0]) for k, v in self.totals.iterator())
        return json.dumps([self.count.get(), [v for (v,) in self.values.get()], totals])

    def close(self) -> None:
        pass


class Async(hr.AsyncProcessor):
    """The same, with waits that differ from row to row; `waits=False` never leaves the bypass."""

    def __init__(self, waits: bool) -> None:
        self.waits = waits

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.values = handle.getListState("values", "v long")
        self.totals = handle.getMapState("totals", "k string", "v long")

    async def process(self, key: Any, row: Any, out: Any) -> None:
        if self.waits and row.v % 3:
            await asyncio.sleep(0.0005 * (row.v % 7))
        n = ((await self.count.get())[0] if await self.count.exists() else 0) + 1
        await asyncio.gather(self.count.update((n,)), self.values.appendValue((row.v,)))
        before = await self.totals.getValue((f"k{row.v % 4}",))
        await self.totals.updateValue((f"k{row.v % 4}",), ((before.v if before else 0) + row.v,))
        await self.handle.registerTimer(int(row.ts.timestamp() * 1000) + 60_000)
        out.emit(Row(id=key[0], what="row", n=n, seen=await self._seen()))

    async def onTimer(self, key: Any, time_ms: int, out: Any) -> None:
        if self.waits:
            await asyncio.sleep(0)
        if time_ms % 3 == 0:
            await self.totals.clear()
        out.emit(Row(id=key[0], what="timer", n=time_ms, seen=await self._seen()))

    async def _seen(self) -> str:
        totals = sorted((k[0], v[0]) for k, v in await self.totals.iterator())
        return json.dumps([await self.count.get(), [v for (v,) in await self.values.get()], totals])


class Failing(Async):
    """Fails at a row of value 13, while other keys wait."""

    async def process(self, key: Any, row: Any, out: Any) -> None:
        await super().process(key, row, out)
        if row.v == 13:
            raise ValueError("thirteen")
        await asyncio.sleep(0.01)


class Large(hr.AsyncProcessor):
    """A map and a list of many cells, whose calls wait for the host."""

    def init(self, handle: Any) -> None:
        self.values = handle.getListState("values", "v long")
        self.seen = handle.getMapState("seen", "v long", "n long")

    async def process(self, key: Any, row: Any, out: Any) -> None:
        update = self.seen.updateValue((row.v,), (row.v + 1,))
        await asyncio.gather(self.values.appendValue((row.v,)), update)
        if row.v % 1000 == 999:
            total = sum(v for (v,) in await self.values.get())
            seven = await self.seen.getValue((7,))
            out.emit(Row(id=key[0], what=str(len(await self.seen.keys())), n=total, seen=str(seven)))
