"""The processors of the benchmark: a running sum, with or without a read of another system per row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import headrace as hr
from headrace.clock import SYSTEM_CLOCK

READ_MS = 5.0  # an external read: a wait of this length
SUMS = "key bigint, total bigint"


class SyncSum(StatefulProcessor):  # type: ignore[misc]
    """Get and update of one value per row; `read_ms` of waiting before."""

    def __init__(self, read_ms: float = 0.0) -> None:
        self.read_ms = read_ms

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "v bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if self.read_ms:
                SYSTEM_CLOCK.sleep_ms(self.read_ms)
            before = self.total.get()
            total = row.amount + (before[0] if before else 0)
            self.total.update((total,))
            yield Row(key=key[0], total=total)

    def close(self) -> None:
        pass


class AsyncSum(hr.AsyncProcessor):
    """The same, awaited."""

    def __init__(self, read_ms: float = 0.0) -> None:
        self.read_ms = read_ms

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "v bigint")

    async def process(self, key: Any, row: Any, out: Any) -> None:
        if self.read_ms:
            await asyncio.sleep(self.read_ms / 1000)
        before = await self.total.get()
        total = row.amount + (before[0] if before else 0)
        await self.total.update((total,))
        out.emit(Row(key=key[0], total=total))


Batches = Iterator[pa.RecordBatch]


def reading(threads: int) -> Callable[[Batches], Batches]:
    """Reads for all rows of a batch in a pool of threads, as users do before a synchronous processor."""

    def read(batches: Batches) -> Batches:
        with ThreadPoolExecutor(threads) as pool:
            for batch in batches:
                list(pool.map(lambda _: SYSTEM_CLOCK.sleep_ms(READ_MS), range(batch.num_rows)))
                yield batch

    return read
