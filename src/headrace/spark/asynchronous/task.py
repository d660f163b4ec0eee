"""One task of an asynchronous processor: rows, then timers, in the order of a synchronous one.

    connect ─▶ process per row ─▶ onTimer per due timer ─▶ disconnect ─▶ close ─▶ drop expired values

The rows of a block are an epoch: its state is sent to the host when all of its calls are complete, while
calls of the next block run. Timers fire after all rows; the batch is committed after all timers.
Threads: one task's thread; another one fetches cells under the lock of the requests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from headrace.execution.controller import Limits
from headrace.execution.record import Record
from headrace.plan.work.cells import CELL
from headrace.spark.asynchronous.context import BlockState, CellRequest, KeyContext
from headrace.spark.asynchronous.drive import TURN_RECORDS, Call, Drive, Out
from headrace.spark.asynchronous.processor import AsyncProcessor
from headrace.spark.asynchronous.states import AsyncHandle
from headrace.spark.processors.blocks import Block, Feed
from headrace.spark.processors.requests import Keys, Talk
from headrace.spark.processors.rows import OUT_ROWS
from headrace.spark.processors.run import BatchTimes, ProcessorPlan, ProcessorTask, continued
from headrace.spark.processors.timers import Timers


class AsyncTask(ProcessorTask):
    """Runs an asynchronous processor over one partition of one batch."""

    def __init__(self, plan: ProcessorPlan, talk: Talk, times: BatchTimes) -> None:
        super().__init__(plan, talk, times)
        processor = plan.processor
        assert isinstance(processor, AsyncProcessor)
        self._user: AsyncProcessor = processor
        self._awaited = AsyncHandle(
            plan.work.variables, self._keyed, self._requests, self._mode, self._timer_values
        )
        self._handle = self._awaited
        self._handle.query = times.query
        self._talk, self._lock, self._out = talk, threading.Lock(), Out()
        limits = Limits(processor.max_in_flight, processor.max_active)
        self._drive = Drive(self._fetch, limits, processor.stalled_s, self._out, OUT_ROWS)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of the processor; the state is written when the iterator is exhausted."""
        try:
            self._user.init(self._awaited)
            yield from self._connected(batches)
        except Exception as error:
            error.add_note(f"operator {self._plan.operator}")
            raise
        finally:
            self._drive.close()

    def _connected(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            self._drive.wait(self._user.connect())
            yield from self._input(batches)
            timers = Timers(self._plan.stage, self._requests, self._keyed, self._until_ms)
            for part in timers.firing():
                yield from self._fire(timers, part)
        finally:
            self._drive.cancel()
            self._drive.wait(self._user.disconnect())
        self._user.close()
        self._awaited.closed = True
        self._awaited.leave_keys()
        timers.expire(self._awaited.expiring)
        yield from self._calls.take()

    # ── input ────────────────────────────────────────────────────────────────────────────────

    def _input(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        feed = Feed(self._plan.stage, batches, self._late_ms)
        yield from self._results(self._rows(feed), self._user.process)
        self.late_rows = feed.late_rows

    def _results(self, source: Iterator[Record | None], call: Call) -> Iterator[pa.RecordBatch]:
        for _ in self._drive.records(source, call):
            self._calls.add(self._out.rows)
            self._out.rows.clear()
            if self._calls.pending >= OUT_ROWS:
                yield from self._calls.take()

    def _rows(self, feed: Feed) -> Iterator[Record | None]:
        """The records of all blocks that wait; the headers of the next block travel while a block runs."""
        requested: Block | None = None
        while (block := feed.advance()) is not None:
            with self._lock:
                if block is not requested:
                    self._ask(block)
                self._requests.settle()
                requested = feed.load()
                if requested is not None:
                    self._ask(requested)
            yield from self._block(block, feed)

    def _block(self, block: Block, feed: Feed) -> Iterator[Record | None]:
        """Calls with the rows of a block; None after every few, so that completed I/O is looked at."""
        state = self._state(block.wire_keys)
        last, calls, is_free = len(block) - 1, self._calls, self._drive.controller.accounting.is_free
        begin, left = self._drive.begin, TURN_RECORDS
        places = zip(block.keys, block.headers, block.starts, block.ends, strict=True)
        for number, (key, header, start, end) in enumerate(places):
            context = KeyContext(state, number, key, header)
            rows = calls.input(block, start, end)
            for row in rows if number < last else chain(rows, continued(feed, calls)):
                record = begin(context, row) if is_free(context) else Record(context, row)
                if record is not None:
                    yield record
                left -= 1
                if not left:
                    yield None
                    left = TURN_RECORDS
            if not is_free(context):
                state.in_flight.append(context)
            elif context.dirty:
                state.store(context)
        self._drive.controller.close_epoch(done=lambda _: self._send(state))
        yield None

    def _state(self, keys: Keys) -> BlockState:
        return BlockState(keys, self._keyed.width, self._times.timestamp_ms, self._drive.request)

    # ── timers ───────────────────────────────────────────────────────────────────────────────

    def _fire(self, timers: Timers, part: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from self._results(self._due_records(timers, part), self._fire_one)

    def _due_records(self, timers: Timers, part: pa.Table) -> Iterator[Record]:
        """The timers of a part, by time; those of one key share its state."""
        keys, at = timers.distinct(part)
        headers, state = self._requests.headers(keys), self._state(keys)
        contexts: dict[int, KeyContext] = {}
        for number, key, time in zip(at, timers.shown(part), part.column(CELL).to_pylist(), strict=True):
            if number not in contexts:
                contexts[number] = KeyContext(state, number, key, headers[number])
            yield Record(contexts[number], time)
        state.in_flight = list(contexts.values())
        self._drive.controller.close_epoch(done=lambda _: self._send(state))

    async def _fire_one(self, key: Any, time_ms: int, out: Out) -> None:
        await self._user.onTimer(key, time_ms, out)
        await self._awaited.deleteTimer(time_ms)

    # ── the host ─────────────────────────────────────────────────────────────────────────────

    def _fetch(self, requests: list[CellRequest]) -> list[list[bytes | None]]:
        """Cells of several keys, one request per block; runs in the fetching thread."""
        by_block: dict[int, list[CellRequest]] = {}
        for request in requests:
            by_block.setdefault(id(request.key.block), []).append(request)
        values: dict[int, list[bytes | None]] = {}
        with self._lock:
            self._requests.settle()
            for group in by_block.values():
                at = [request.key.number for request in group for _ in request.numbers]
                cells = [number for request in group for number in request.numbers]
                nothing = pa.nulls(len(cells), pa.binary())
                self._talk.ask(group[0].key.block.keys.rows(at, cells, nothing, self._talk.schema))
            for group in by_block.values():
                answers = iter(self._talk.read().to_pylist())
                values.update({id(one): [next(answers) for _ in one.numbers] for one in group})
        return [values[id(request)] for request in requests]

    def _send(self, state: BlockState) -> None:
        """Sends what the calls of a block wrote."""
        requests = self._requests
        with self._lock:
            requests.begin_block(state.keys)
            for context in state.in_flight:
                if context.dirty:
                    state.store(context)
            requests.put_some(state.headers, state.reminders)
            for number, cell in state.written:
                requests.at_key(number)
                requests.write(cell, state.cells[number, cell])
            requests.end_block()
