"""Writes a DataFrame as the next version of an operator's state.

The write is planned, or refused, before any task runs. Spark's tasks stage its rows; once all of them are
done, it is published. A failed write removes what it staged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.blob.locations import Locations
from headrace.edit.commit import commit_write, discard_write
from headrace.edit.plan import WritePlan, plan_write
from headrace.edit.rows import RowMaker
from headrace.edit.schema import WriteSchema
from headrace.edit.shards import Shard, ShardWriter
from headrace.errors import QueryError
from headrace.inspect.state import State
from headrace.spark.tables.options import TableOptions
from headrace.wire.calls import call, connect

_ASK_S = 10.0


@dataclass(frozen=True)
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """What one task staged."""

    shards: tuple[Shard, ...]


class StateWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes one operator's state."""

    def __init__(self, plan: WritePlan, schema: pa.Schema, store: str) -> None:
        self._plan, self._schema, self._store = plan, schema, store

    @classmethod
    def prepared(cls, options: TableOptions, schema: StructType, overwrite: bool) -> StateWriter:
        """The writer of a table that fits; raises before anything is written."""
        assert options.operator is not None
        with State(options.checkpoint) as state:
            plan = plan_write(state, options.operator, overwrite=overwrite)
        columns = to_arrow_schema(schema, timezone="UTC")
        _ = WriteSchema(plan.spec, columns).takes
        stores = {base.store for base in plan.bases if base is not None}
        return cls(plan, columns, stores.pop() if stores else "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        with tempfile.TemporaryDirectory(prefix="headrace-write-") as local:
            blobs = Locations(Path(local)).open(self._plan.location, create=True)
            return Staged(tuple(ShardWriter(self._plan, self._maker(), blobs).write(iterator)))

    def commit(self, messages: Sequence[Any]) -> None:
        shards = _shards(messages)
        try:
            commit_write(self._plan, self._maker(), shards)
        except BaseException:
            discard_write(self._plan, shards)
            raise

    def abort(self, messages: Sequence[Any]) -> None:
        discard_write(self._plan, _shards(messages))

    def _maker(self) -> RowMaker:
        return RowMaker(
            WriteSchema(self._plan.spec, self._schema), self._store, self._plan.closed_through_us
        )


def refuse_running(checkpoint: str, driver: tuple[str, str] | None) -> None:
    """Refuse to write the state of a query that runs in this application; others are seen by their logs."""
    if driver is None:
        return
    with State(checkpoint) as state:
        request = {"query": state.query}
        run = call(connect(driver[0]), driver[1], "running", request, timeout_s=_ASK_S)["run"]
    if run is not None:
        raise QueryError(
            f"the query at {checkpoint} is running (run {run})",
            hint="stop it with query.stop(), and write then; nothing was changed",
        )


def _shards(messages: Sequence[Any]) -> list[Shard]:
    return [shard for message in messages if message is not None for shard in message.shards]
