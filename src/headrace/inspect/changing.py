"""The rows of groups that change: aggregates of a changelog, and the bags of top-N.

A group whose rows are all gone stays in segments until a compaction; it is no row of the table.
Threads: one reader per object.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from headrace.inspect.rows import FoldRows, Held, Read
from headrace.inspect.shown.batches import kept_batch, state_schema
from headrace.plan.spec import OperatorSpec
from headrace.plan.work.changes.retracting import Retracting
from headrace.row.layout import RowLayout
from headrace.store.changes.bag_rows import BagShape
from headrace.store.rows.kept_layout import KeptLayout
from headrace.store.segments.merge import Source, merge_runs


@dataclass(frozen=True)
class LivingRows:
    """Groups of a changelog that have rows."""

    stored: Held
    by_time: bool = False

    @cached_property
    def _groups(self) -> FoldRows:
        return FoldRows(self.stored)

    @cached_property
    def _count(self) -> str:
        """The wire column with the number of rows of a group."""
        assert isinstance(self.stored.spec.work, Retracting)
        return f"a{self.stored.spec.work.rows}"

    def sections(self) -> list[int]:
        return self._groups.sections()

    def sources(self, section: int) -> list[Source]:
        return self._groups.sources(section)

    def read(self, section: int, read: Read) -> pa.RecordBatch:
        batch = self._groups.read(section, read)
        return batch.filter(pc.greater(batch.column(self._count), 0))


@dataclass(frozen=True)
class BagTableRows:
    """The rows of bags, each as a row of its own.

    `operator` is the top-N, `stored.spec` that of the table.
    """

    stored: Held
    operator: OperatorSpec
    kept: OperatorSpec  # that of the rows in a bag, whose inputs may be more than the table shows
    by_time: bool = False

    @cached_property
    def _bags(self) -> RowLayout:
        return RowLayout(self.operator)

    def sections(self) -> list[int]:
        return self.stored.open_sections()

    def sources(self, section: int) -> list[Source]:
        return [(segment, section) for segment in self.stored.segments if section in segment.sections]

    def read(self, section: int, read: Read) -> pa.RecordBatch:
        runs = [read(segment, section) for segment in self.stored.segments if section in segment.sections]
        bags, layout = merge_runs(runs[::-1], self._bags), KeptLayout(self.kept)
        rows = BagShape(layout).unpacked(bags, self._bags.accumulators[0].word).rows
        return kept_batch(layout, rows).select(state_schema(self.stored.spec).names)
