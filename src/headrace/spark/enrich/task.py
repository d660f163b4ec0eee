"""The task of an enrichment: one look-up per Arrow batch, for its distinct keys.

Threads: one task's thread. Caches outlive a task; a reused worker process reuses them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import QueryError
from headrace.outside.client import RedisClient
from headrace.outside.lookup import Lookup
from headrace.outside.redis import RedisSource

KEY = "__key"

RowBatches = Iterator[pa.RecordBatch]


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

    def run(self, batches: RowBatches) -> RowBatches:
        with asyncio.Runner() as runner:
            client = runner.run(_client(self._plan.source))
            try:
                for batch in batches:
                    yield self._enriched(batch, runner, client)
            finally:
                runner.run(client.close())

    def _enriched(
        self, batch: pa.RecordBatch, runner: asyncio.Runner, client: RedisClient
    ) -> pa.RecordBatch:
        keys = batch.column(KEY)
        distinct = pc.unique(keys).drop_null().to_pylist()
        values = runner.run(self._lookup.values(client, distinct))
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
