"""A version of an operator's state as a table: read partition by partition, in bounded memory.

Threads: any number may read one table; every read opens its own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.blob.base import Blobs
from headrace.format.manifest import Manifest
from headrace.inspect.forms import table_spec, without_marks
from headrace.inspect.partition import PartitionState, open_partition
from headrace.inspect.selection import Selection
from headrace.inspect.shown.columns import TableColumn, as_table, schema_of, table_columns
from headrace.inspect.shown.variables import Variables
from headrace.plan.partitions.groups import partition_of
from headrace.plan.spec import OperatorSpec

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class StateTable:
    """The state of one operator after one batch.

    Examples
    --------
    >>> import headrace.inspect
    >>> table = headrace.inspect.open(checkpoint).table("totals")
    >>> table.version, table.count(), table.schema.names
    (1, 3, ['user', 'n', 'total'])
    """

    blobs: Blobs
    query: str
    spec: OperatorSpec
    manifests: Sequence[Manifest]  # by partition
    folders: Sequence[str]  # of the partitions
    selection: Selection
    accumulators: bool = False

    @property
    def version(self) -> int:
        return self.manifests[0].version

    @cached_property
    def columns(self) -> list[TableColumn]:
        return table_columns(table_spec(self.spec), accumulators=self.accumulators)

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.columns) if self._variables is None else self._variables.schema

    @cached_property
    def _variables(self) -> Variables | None:
        """The variables of a processor; None where rows are shown as they are stored."""
        is_processor = self.spec.work.is_interactive and not self.accumulators
        return Variables(self.spec) if is_processor else None

    def open_partition(self, partition: int) -> PartitionState:
        """One partition's files, opened; close it after use."""
        return open_partition(self.blobs, self.folders[partition], self.spec, self.manifests[partition])

    def wire_batches(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The selected rows of one partition as wire columns after the hash."""
        with self.open_partition(partition) as state:
            for batch in state.batches(self.selection):
                yield batch if self.accumulators else without_marks(self.spec, batch)

    def partition_batches(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The selected rows of one partition."""
        for batch in self.wire_batches(partition):
            yield as_table(self.columns, batch) if self._variables is None else self._variables.table(batch)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All selected rows, a few thousand at a time."""
        for partition in self.partitions:
            yield from self.partition_batches(partition)

    @cached_property
    def partitions(self) -> list[int]:
        """The partitions that can have a selected row."""
        hashes = self.selection.hashes
        everything = list(range(len(self.manifests)))
        if hashes is None:
            return everything
        return sorted({partition_of(int(order), len(self.manifests)) for order in hashes})

    def to_arrow(self) -> pa.Table:
        """All selected rows as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All selected rows as a pandas frame."""
        return self.to_arrow().to_pandas()

    def count(self) -> int:
        """How many selected rows there are."""
        if self._variables is not None:
            return sum(batch.num_rows for batch in self.to_batches())
        return sum(batch.num_rows for part in self.partitions for batch in self.wire_batches(part))

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"StateTable({self.spec.name}, version {self.version}: {columns})"
