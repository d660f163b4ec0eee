"""NEXMark as a Spark data source: `spark.readStream.format("nexmark")`, and `spark.read` for a batch.

An offset is the number of events emitted so far, and an event is a pure function of its number. So a
replayed batch has the same rows, with any number of partitions, and the source needs no state.

Threads: a stream reader serves one call at a time, in a process that Spark keeps for the query. Its only
state is the time at which a throttled stream started. Tasks have a copy and use only its options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headrace.clock import Clock, SystemClock
from headrace.errors import QueryError
from headrace.generators.nexmark import NexmarkGenerator, schema
from headrace.generators.nexmark.options import NexmarkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_OFFSET = "events"


def register(spark: SparkSession) -> None:
    """Registers `format("nexmark")` with a Spark session.

    Examples
    --------
    >>> from headrace.spark.sources.nexmark import register
    >>> register(spark)
    >>> bids = spark.readStream.format("nexmark").option("view", "bid").load()
    """
    spark.dataSource.register(NexmarkSource)


class NexmarkSource(DataSource):  # type: ignore[misc]
    """Reads its options; `docs/nexmark.md` describes them."""

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> StructType:
        return from_arrow_schema(schema(NexmarkOptions.parse(self.options).view))

    def reader(self, schema: StructType) -> DataSourceReader:
        return NexmarkReader(NexmarkOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NexmarkStreamReader(NexmarkOptions.parse(self.options))


@dataclass
class EventRange(InputPartition):  # type: ignore[misc]
    """The events `start` … `stop - 1` of one task."""

    start: int
    stop: int


def split(start: int, stop: int, parts: int) -> list[EventRange]:
    """Cuts `start` … `stop` into at most `parts` contiguous ranges of about equal size, none empty."""
    bounds = [start + (stop - start) * at // parts for at in range(parts + 1)]
    return [EventRange(low, high) for low, high in pairwise(bounds) if low < high]


def _generate(options: NexmarkOptions, events: EventRange) -> Iterator[pa.RecordBatch]:
    return NexmarkGenerator(options.config).batches(options.view, events.start, events.stop)


class NexmarkReader(DataSourceReader):  # type: ignore[misc]
    """All `events` at once."""

    def __init__(self, options: NexmarkOptions) -> None:
        self._options = options
        self._events = options.need_events("spark.read")

    def partitions(self) -> Sequence[EventRange]:
        return split(0, self._events, self._options.partitions) or [EventRange(0, 0)]

    def read(self, partition: EventRange) -> Iterator[pa.RecordBatch]:
        return _generate(self._options, partition)


class NexmarkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Micro-batches of at most `eventsPerBatch` events."""

    def __init__(self, options: NexmarkOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._anchor: tuple[float, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return {_OFFSET: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.events_per_batch)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The next offset: `eventsPerBatch` further, at most `events`, and not past the clock if throttled.

        Under Trigger.Once Spark requests everything; a stream with an end returns it all.
        """
        at, total = start[_OFFSET], self._options.events
        requested = (
            limit.max_rows if isinstance(limit, ReadMaxRows) else total or self._options.events_per_batch
        )
        bounds = [at + requested, total, self._due(at)]
        return {_OFFSET: max(at, min(bound for bound in bounds if bound is not None))}

    def prepareForTriggerAvailableNow(self) -> None:
        """Refuses a stream without an end, and one that waits for the clock: available now is all of
        `events`.
        """
        self._options.need_events("Trigger.AvailableNow")
        if self._options.throttle:
            raise QueryError(
                "nexmark: throttle does not go with Trigger.AvailableNow, which takes all events at once",
                hint="leave throttle out, or use a processing-time trigger",
            )

    def reportLatestOffset(self) -> dict[str, int] | None:
        return None if self._options.events is None else {_OFFSET: self._options.events}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[EventRange]:
        return split(start[_OFFSET], end[_OFFSET], self._options.partitions)

    def read(self, partition: EventRange) -> Iterator[pa.RecordBatch]:
        return _generate(self._options, partition)

    def _due(self, at: int) -> int | None:
        """The number of events that are due by the clock; a restart begins with no backlog."""
        if not self._options.throttle:
            return None
        if self._anchor is None:
            self._anchor = (self._clock.monotonic_ms(), at)
        began_ms, first = self._anchor
        return first + int((self._clock.monotonic_ms() - began_ms) * self._options.config.rate / 1000)
