"""One task of a processor: rows of every key, then timers, then expired values, in Spark's order.

    init ─▶ handleInitialState ─▶ handleInputRows per key ─▶ timers ─▶ close ─▶ drop expired values

The headers of a block are requested while the block before runs. A header is written if user code changed
it.
Threads: one task's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, Protocol

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues

from headrace.plan.work.cells import Cells
from headrace.spark.processors.blocks import Block, Feed, Stage
from headrace.spark.processors.handle import NO_QUERY, QueryInfo, TaskHandle
from headrace.spark.processors.initial import parted
from headrace.spark.processors.keyed import Header, KeyedState
from headrace.spark.processors.requests import Requests, Talk
from headrace.spark.processors.rows import OUT_ROWS, RowStyle, punctual
from headrace.spark.processors.timers import Timers

Style = Literal["row", "pandas"]
Handle = Callable[[Any, Iterator[Any]], None]  # user code over the rows of one key
KeysOf = Callable[[Block], list[tuple[Any, ...]]]  # the keys of a block as user code sees them


class Calls(Protocol):
    """How a processor is called, and what becomes of its results."""

    def input(self, block: Block, start: int, end: int) -> Iterator[Any]: ...

    def add(self, results: Iterable[Any]) -> None: ...

    @property
    def pending(self) -> int:
        """Rows of results that `take` would return."""

    def take(self) -> Iterator[pa.RecordBatch]: ...


class WorkerTask(Protocol):
    """User code over one partition of one batch."""

    late_rows: int

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...


class WorkerPlan(Protocol):
    """User code and how to run it; part of Spark's closure."""

    @property
    def output(self) -> T.StructType: ...

    def task(self, talk: Talk, times: BatchTimes) -> WorkerTask: ...


@dataclass(frozen=True, eq=False)
class ProcessorPlan:
    """A processor and how to run it; part of Spark's closure."""

    operator: str
    processor: StatefulProcessor
    work: Cells
    style: Style
    stage: Stage
    output: T.StructType
    zone: str  # time zone of the Spark session
    initial: Stage | None = None  # the columns of the initial state
    event_time: str | None = None  # the event time in the output

    def task(self, talk: Talk, times: BatchTimes) -> WorkerTask:
        """The processor over one partition of one batch; a processor may bring a task of its own."""
        own = getattr(self.processor, "headrace_task", None)
        task: WorkerTask = ProcessorTask(self, talk, times) if own is None else own(self, talk, times)
        return task

    def calls(self, stage: Stage) -> Calls:
        """Calls with the rows of a stage."""
        if self.style == "row":
            return RowStyle(stage.names, self.output)
        from headrace.spark.processors.frames import FrameStyle

        return FrameStyle(stage.names, self.output, self.zone)


@dataclass(frozen=True)
class BatchTimes:
    """The times of one batch in ms; None before the first watermark."""

    timestamp_ms: int
    late_ms: int | None
    watermark_ms: int | None
    query: QueryInfo = NO_QUERY  # the batch itself


def over_state(plan: WorkerPlan, recorded: dict[str, Any]) -> WorkerPlan:
    """The plan with its variables where the state of earlier runs has them."""
    work = Cells.from_json(recorded)
    return replace(plan, work=work) if hasattr(plan, "work") else plan  # type: ignore[type-var]


class KeyedTask:
    """User code that is called once per key, over one partition of one batch."""

    def __init__(self, operator: str, work: Cells, talk: Talk, times: BatchTimes) -> None:
        self._operator, self._mode, self._times = operator, work.time_mode, times
        self._requests = Requests(talk)
        self._keyed = KeyedState(len(work.variables), times.timestamp_ms)
        self.late_rows = 0

    @property
    def _until_ms(self) -> int | None:
        """The time up to which timers fire; values expire by the same clock."""
        if self._mode == "processingtime":
            return self._times.timestamp_ms
        return self._times.watermark_ms if self._mode == "eventtime" else None

    @property
    def _late_ms(self) -> int | None:
        return self._times.late_ms if self._mode == "eventtime" else None

    def _keys(self, feed: Feed, calls: Calls, handle: Handle, keys_of: KeysOf) -> Iterator[pa.RecordBatch]:
        """Calls `handle` with every key; state is sent when a block is over."""
        requested: Block | None = None
        while (block := feed.advance()) is not None:
            if block is not requested:
                self._ask(block)
            self._requests.settle()
            requested = feed.load()
            if requested is not None:
                self._ask(requested)
            self._requests.begin_block(block.wire_keys)
            yield from self._over_block(block, feed, calls, handle, keys_of(block))
            self._requests.end_block()

    def _over_block(
        self, block: Block, feed: Feed, calls: Calls, handle: Handle, keys: list[tuple[Any, ...]]
    ) -> Iterator[pa.RecordBatch]:
        """Calls with the keys of a block; the last key may go on in later blocks."""
        requests, keyed, rows_of, last = self._requests, self._keyed, calls.input, len(block) - 1
        spans = zip(keys, block.headers, block.starts, block.ends, strict=True)
        for number, (key, header, start, end) in enumerate(spans):
            requests.load_key(keyed, number, header)
            if number == last:
                handle(key, chain(rows_of(block, start, end), continued(feed, calls)))
                for _ in continued(feed, calls):  # rows that user code left unread
                    pass
            else:
                handle(key, rows_of(block, start, end))
            if keyed.dirty:
                requests.store_key(keyed)
            if calls.pending >= OUT_ROWS:
                yield from calls.take()

    def _ask(self, block: Block) -> None:
        def deliver(headers: list[Header | None]) -> None:
            block.headers = headers

        self._requests.ask_headers(block.wire_keys, deliver)

    def _noted(self, error: Exception, key: Any) -> None:
        error.add_note(f"operator {self._operator}, key {key!r}: the code of the user failed")


class ProcessorTask(KeyedTask):
    """Runs a processor over one partition of one batch."""

    def __init__(self, plan: ProcessorPlan, talk: Talk, times: BatchTimes) -> None:
        super().__init__(plan.operator, plan.work, talk, times)
        self._plan, self._processor = plan, plan.processor
        self._handle = TaskHandle(plan.work.variables, self._keyed, self._requests, self._mode)
        self._handle.query = times.query
        self._calls = plan.calls(plan.stage)
        self._timer_values = _timer_values(self._mode, times)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of the processor; the state is written when the iterator is exhausted."""
        checked = punctual(self._plan.operator, self._plan.event_time, self._times.late_ms)
        return map(checked, self._run(batches))

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._processor.init(self._handle)
        if self._plan.initial is not None:
            initial, rows = parted(self._plan.initial, batches)
            self._begin_with(self._plan.initial, initial)
            batches = iter(rows)
        yield from self._input(batches)
        timers = Timers(self._plan.stage, self._requests, self._keyed, self._until_ms)
        yield from timers.fire(self._expired, self._calls)
        self._processor.close()
        self._handle.closed = True
        timers.expire(self._handle.expiring)
        yield from self._calls.take()

    def _begin_with(self, stage: Stage, batches: list[pa.RecordBatch]) -> None:
        """Initial state comes before any row of the stream."""
        calls = self._plan.calls(stage)

        def handle(key: Any, rows: Iterator[Any]) -> None:
            try:
                for row in rows:
                    self._processor.handleInitialState(key, row, self._timer_values)
            except Exception as error:
                self._noted(error, key)
                raise

        for _ in self._keys(Feed(stage, iter(batches), None), calls, handle, _keys_of):
            pass

    def _input(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        feed = Feed(self._plan.stage, batches, self._late_ms)
        call, add, times = self._processor.handleInputRows, self._calls.add, self._timer_values

        def handle(key: Any, rows: Iterator[Any]) -> None:
            try:
                add(call(key, rows, times) or ())
            except Exception as error:
                self._noted(error, key)
                raise

        yield from self._keys(feed, self._calls, handle, _keys_of)
        self.late_rows = feed.late_rows

    def _expired(self, key: Any, time_ms: int) -> None:
        """Calls the processor with a timer."""
        try:
            info = ExpiredTimerInfo(time_ms)
            self._calls.add(self._processor.handleExpiredTimer(key, self._timer_values, info) or ())
        except Exception as error:
            self._noted(error, key)
            raise
        self._handle.deleteTimer(time_ms)


def _keys_of(block: Block) -> list[tuple[Any, ...]]:
    return block.keys


def continued(feed: Feed, calls: Calls) -> Iterator[Any]:
    """The rows of the current block's last key in later blocks."""
    for block, head in feed.continued():
        yield from calls.input(block, 0, head)


def _timer_values(mode: str, times: BatchTimes) -> TimerValues:
    if mode == "none":
        return TimerValues(-1, -1)
    watermark = times.watermark_ms if times.watermark_ms is not None else 0
    return TimerValues(times.timestamp_ms, watermark if mode == "eventtime" else -1)
