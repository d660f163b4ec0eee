"""Staged rows of a write: every task sorts what it has into small segments, one per partition.

    <query>/<operator>/writes/<write id>/p<partition>-<task>-<number>

No version names them: until the write is published they are nobody's state, and a write that fails removes
them. Memory of a task: `FLUSH_BYTES` of rows and their sorted copy.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, place_file
from headrace.clock import SystemClock
from headrace.edit.plan import WritePlan
from headrace.edit.rows import RowMaker, StateRun
from headrace.errors import QueryError
from headrace.format.names import operator_prefix
from headrace.row.arrays import I64
from headrace.row.run import Run
from headrace.store.append.merge import concatenated
from headrace.store.rows.take import rows_at
from headrace.store.segments.writer import write_segment
from headrace.store.tables.table import Table

FLUSH_BYTES = 64 << 20


@dataclass(frozen=True)
class Shard:
    """Staged rows of one partition."""

    name: str
    partition: int
    rows: int


def staging_prefix(plan: WritePlan) -> str:
    return f"{operator_prefix(plan.query, plan.spec.name)}/{plan.staging}"


@dataclass
class ShardWriter:
    """Stages the rows of one task."""

    plan: WritePlan
    maker: RowMaker
    blobs: Blobs
    shards: list[Shard] = field(default_factory=list)
    _waiting: list[StateRun] = field(default_factory=list)
    _task: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[Shard]:
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            self._waiting.append(self.maker.rows(batch))
            size += self._waiting[-1].run.nbytes
            if size >= FLUSH_BYTES:
                self._flush()
                size = 0
        self._flush()
        return self.shards

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        run = concatenated([one.run for one in waiting], self.maker.kind.shape)
        partitions = np.concatenate([one.partitions for one in waiting])
        sections = np.concatenate([one.sections for one in waiting])
        order = np.lexsort((run.order, sections, partitions))
        bounds = [0, *(np.flatnonzero(np.diff(partitions[order])) + 1).tolist(), len(order)]
        for start, end in pairwise(bounds):
            mine = order[start:end]
            self._shard(int(partitions[mine[0]]), mine, sections, run)

    def _shard(self, partition: int, rows: I64, sections: I64, run: Run) -> None:
        shape = self.maker.kind.shape
        name = f"{staging_prefix(self.plan)}/p{partition:04d}-{self._task}-{len(self.shards)}"
        staged = self.blobs.staging(name)
        parts = self._sections(rows, sections, run)
        write_segment(staged, shape.width, parts, shape.variable_words, sync=False)
        place_file(self.blobs, name, staged, clock=SystemClock(), retry=Retry())
        self.shards.append(Shard(name, partition, len(rows)))

    def _sections(
        self,
        rows: np.ndarray,
        sections: np.ndarray,
        run: Run,
    ) -> Iterator[tuple[int, list[Run]]]:
        numbers = sections[rows]
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(rows)]
        for start, end in pairwise(bounds):
            part = rows_at(run, rows[start:end])
            self._refuse_twice(part)
            yield int(numbers[start]), [part]

    def _refuse_twice(self, run: Run) -> None:
        """Refuse a key that has two rows, where a key has one."""
        if self.maker.kind.appends or not (run.order[1:] == run.order[:-1]).any():
            return
        table = Table(self.maker.kind.shape, len(run))  # type: ignore[arg-type]
        if len(table.upsert(run)[1]) < len(run):
            raise twice(self.plan)


def twice(plan: WritePlan) -> QueryError:
    what = "key" if plan.spec.window is None else "key and window"
    return QueryError(
        f"the table has a {what} of operator {plan.spec.name} in more than one row",
        hint="aggregate or drop duplicates before the write",
    )
