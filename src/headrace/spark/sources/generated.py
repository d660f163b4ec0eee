"""Streams of generated records as Spark data sources: the common part of `linear_road` and
`cluster_monitoring`.

An offset is the number of records emitted so far, and a record is a pure function of its number. So a
replayed batch has the same rows, with any number of partitions, and the source needs no state.

Threads: a stream reader serves one call at a time, in a process that Spark keeps for the query. Its only
state is the time at which a paced stream started. Tasks have a copy and use only its options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headrace.clock import Clock, SystemClock
from headrace.errors import QueryError
from headrace.generators.records.options import SourceOptions
from headrace.spark.sources.nexmark import EventRange, split

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.generators.records.records import Kind

_OFFSET = "records"


class GeneratedSource(DataSource):  # type: ignore[misc]
    """A source of one kind of records; `generators/records/options.py` has its options."""

    kind: ClassVar[Kind]

    @classmethod
    def name(cls) -> str:
        return cls.kind.name

    def schema(self) -> StructType:
        return from_arrow_schema(self.kind.schema_of(self._options().view))

    def reader(self, schema: StructType) -> DataSourceReader:
        return GeneratedReader(self.kind, self._options())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return GeneratedStreamReader(self.kind, self._options())

    def _options(self) -> SourceOptions:
        return SourceOptions.parse(self.kind.name, self.options)


class GeneratedReader(DataSourceReader):  # type: ignore[misc]
    """All `records` at once."""

    def __init__(self, kind: Kind, options: SourceOptions) -> None:
        self._kind, self._options = kind, options
        self._records = need_end(kind, options, "spark.read")

    def partitions(self) -> Sequence[EventRange]:
        return split(0, self._records, self._options.partitions) or [EventRange(0, 0)]

    def read(self, partition: EventRange) -> Iterator[pa.RecordBatch]:
        return self._kind.batches(self._options, partition.start, partition.stop)


class GeneratedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Micro-batches of at most `recordsPerBatch` records."""

    def __init__(self, kind: Kind, options: SourceOptions, clock: Clock | None = None) -> None:
        self._kind, self._options = kind, options
        self._clock = clock or SystemClock()
        self._anchor: tuple[float, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return {_OFFSET: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.per_batch)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The next offset: `recordsPerBatch` further, at most `records`, and not past the clock if
        throttled.
        """
        at, total = start[_OFFSET], self._options.records
        requested = limit.max_rows if isinstance(limit, ReadMaxRows) else total or self._options.per_batch
        bounds = [at + requested, total, self._due(at)]
        return {_OFFSET: max(at, min(bound for bound in bounds if bound is not None))}

    def prepareForTriggerAvailableNow(self) -> None:
        need_end(self._kind, self._options, "Trigger.AvailableNow")
        if not self._options.unthrottled:
            raise QueryError(
                f"{self._kind.name}: Trigger.AvailableNow takes all records at once and waits for no clock",
                hint='add .option("unthrottled", "true"), or use a processing-time trigger',
            )

    def reportLatestOffset(self) -> dict[str, int] | None:
        return None if self._options.records is None else {_OFFSET: self._options.records}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[EventRange]:
        return split(start[_OFFSET], end[_OFFSET], self._options.partitions)

    def read(self, partition: EventRange) -> Iterator[pa.RecordBatch]:
        return self._kind.batches(self._options, partition.start, partition.stop)

    def _due(self, at: int) -> int | None:
        """The number of records that are due by the clock; a restart begins with no backlog."""
        if self._options.unthrottled:
            return None
        if self._anchor is None:
            self._anchor = (self._clock.monotonic_ms(), at)
        began_ms, first = self._anchor
        return first + int((self._clock.monotonic_ms() - began_ms) * self._options.traffic.rate / 1000)


def need_end(kind: Kind, options: SourceOptions, reader: str) -> int:
    """The total number of records; an error without it, because this reader must end."""
    if options.records is None:
        raise QueryError(f"{kind.name}: {reader} needs an end", hint='add .option("records", …)')
    return options.records
