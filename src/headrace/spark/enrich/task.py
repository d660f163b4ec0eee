"""The task of an enrichment: one look-up per Arrow batch, for its distinct keys.

    Arrow batch ─▶ look-up begins ─▶ waits behind `AHEAD` others ─▶ columns are added

The look-ups of the next batches are under way while one is converted, so their round trips overlap.
Threads: one task's thread, and that of its event loop. Caches outlive a task; a reused worker process
reuses them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import SYSTEM_CLOCK
from headrace.errors import QueryError
from headrace.outside.client import RedisClient
from headrace.outside.lookup import Lookup
from headrace.outside.loop import LoopThread
from headrace.outside.redis import RedisSource, Values
from headrace.store.base.waits import WaitHistogram

KEY = "__key"

AHEAD = 4  # Arrow batches whose look-ups are under way while one is converted

RowBatches = Iterator[pa.RecordBatch]
Coming = tuple[pa.RecordBatch, Future[dict[str, Values]]]


class Lookups:
    """The look-ups of a worker process, with their caches."""

    def __init__(self) -> None:
        self._by_source: dict[RedisSource, Lookup] = {}

    def of(self, source: RedisSource) -> Lookup:
        return self._by_source.setdefault(source, Lookup(source))


LOOKUPS = Lookups()  # of this worker process


@dataclass(frozen=True)
class EnrichPlan:
    """What to look up, and the schema of the new columns; part of Spark's closure."""

    source: RedisSource
    schema: pa.Schema
    ahead: int = AHEAD


def enriching(plan: EnrichPlan) -> Callable[[RowBatches], RowBatches]:
    """The function of an enrichment for `mapInArrow`. Its name is not that of a stateful operator."""

    def enrich_from_store(batches: RowBatches) -> RowBatches:
        from headrace.spark.enrich.task import LOOKUPS, Enrichment

        return Enrichment(plan, LOOKUPS.of(plan.source)).run(batches)

    return enrich_from_store


class Enrichment:
    """Adds columns to the batches of one task."""

    def __init__(self, plan: EnrichPlan, lookup: Lookup) -> None:
        self._plan, self._lookup = plan, lookup
        self.waits = WaitHistogram()  # rows by the time that their batch waited for its values

    def run(self, batches: RowBatches) -> RowBatches:
        coming: deque[Coming] = deque()
        with LoopThread() as loop:
            client = loop.run(_client(self._plan.source))
            try:
                for batch in batches:
                    distinct = pc.unique(batch.column(KEY)).drop_null().to_pylist()
                    coming.append((batch, loop.begin(self._lookup.values(client, distinct))))
                    if len(coming) > self._plan.ahead:
                        yield self._enriched(*coming.popleft())
                while coming:
                    yield self._enriched(*coming.popleft())
            finally:
                loop.run(client.close())

    def _enriched(self, batch: pa.RecordBatch, future: Future[dict[str, Values]]) -> pa.RecordBatch:
        begun_ms = SYSTEM_CLOCK.monotonic_ms()
        keys, values = batch.column(KEY), future.result()
        self.waits.add(batch.num_rows, SYSTEM_CLOCK.monotonic_ms() - begun_ms)
        rows = pc.index_in(keys, value_set=pa.array(list(values), pa.string()))
        table = list(zip(*values.values(), strict=True)) if values else [() for _ in self._plan.schema]
        columns = [
            self._converted(column, field).take(rows)
            for column, field in zip(table, self._plan.schema, strict=True)
        ]
        kept = [name for name in batch.schema.names if name != KEY]
        return pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in kept), *columns], [*kept, *self._plan.schema.names]
        )

    def _converted(self, values: tuple[bytes | None, ...], field: pa.Field) -> pa.Array:
        """The values of a column in its type."""
        column = pa.array(values, pa.binary())
        if pa.types.is_binary(field.type):
            return column
        try:
            return column.cast(pa.string()).cast(field.type)
        except pa.ArrowInvalid as error:
            raise QueryError(
                f"a value of column {field.name} in Redis does not fit: {error}",
                hint="name the column's type as text can be converted to it, or read it as a string",
            ) from None


async def _client(source: RedisSource) -> RedisClient:
    """The client, made inside of the loop that it belongs to."""
    return RedisClient(source.address)
