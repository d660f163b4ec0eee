"""The event loop of a task: it runs the records of an epoch, and pauses when enough results are ready.

Invariants: after `epochs` is exhausted nothing is in flight. The first failure cancels all other records.
Threads: the loop runs in the task's thread; one more thread fetches cells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from headrace.errors import TryAgain
from headrace.execution.controller import Controller, Limits
from headrace.execution.record import Record
from headrace.plan.times import TIMES
from headrace.spark.asynchronous.context import CURRENT, CellRequest, KeyContext
from headrace.spark.asynchronous.stepping import Stepper
from headrace.spark.bridge.worker import seldom_collecting

TURN_RECORDS = 256  # new records between two looks at completed I/O

Call = Callable[[Any, Any, "Out"], Coroutine[Any, Any, None]]  # key, row or time, results
Fetch = Callable[[list[CellRequest]], list[list[bytes | None]]]


class Stalled(TryAgain):
    """No record completed for a long time."""


class Cancelled(TryAgain):
    """User code cancelled its own call."""


class Out:
    """Where user code puts its results."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.emit = self.rows.append


class Drive:
    """Runs records on an event loop of its own."""

    def __init__(self, fetch: Fetch, limits: Limits, stalled_s: float, out: Out, out_rows: int) -> None:
        self._fetch, self._stalled_s, self._out, self._out_rows = fetch, stalled_s, out, out_rows
        self.controller = Controller(self._start, self._issue, limits, overlapping=True)
        self._loop = asyncio.new_event_loop()
        self._stepper = Stepper(self._loop)
        self._fetcher = ThreadPoolExecutor(1, thread_name_prefix="headrace-cells")
        self._running: dict[asyncio.Task[Any], Record] = {}
        self._source: Iterator[Record | None] = iter(())
        self._call: Call | None = None
        self._failure: BaseException | None = None
        self._is_woken = False
        self._has_more = False
        self._completed = 0  # records that have waited
        self._watching: asyncio.TimerHandle | None = None

    # ── from outside of the loop ─────────────────────────────────────────────────────────────

    def records(self, source: Iterator[Record | None], call: Call) -> Iterator[None]:
        """Runs all records of a source; yields whenever enough results are ready."""
        self._source, self._call, self._has_more = source, call, True
        while not self._is_over:
            self._run()
            yield

    def wait(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs one coroutine, with nothing else in flight."""
        with _apart():
            self._loop.run_until_complete(coroutine)

    def cancel(self) -> None:
        """Cancels all records that wait. A coroutine that ignores its cancellation is left behind."""
        running = list(self._running)
        self._running.clear()
        for task in running:
            task.cancel()
        if running:
            self.wait(_ended(running))

    def close(self) -> None:
        """Cancels what still runs and ends the loop and its threads."""
        if self._loop.is_closed():
            return
        self.cancel()
        with _apart():
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._fetcher.shutdown(wait=True, cancel_futures=True)
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _run(self) -> None:
        """Runs the loop until results are to be passed on, or all is complete, or a record failed."""
        self._set_watch()
        self._wake()
        try:
            with _apart(), seldom_collecting():
                self._loop.run_forever()
        finally:
            if self._watching is not None:
                self._watching.cancel()
        if self._failure is not None:
            self.cancel()
            raise self._failure

    # ── in the loop ──────────────────────────────────────────────────────────────────────────

    @property
    def _is_over(self) -> bool:
        return not self._has_more and self.controller.is_drained

    def _wake(self) -> None:
        """Schedules a turn."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_woken = False
        if self._failure is not None:
            return
        try:
            with self._stepper:
                self._advance()
        except BaseException as error:
            self._fail(error)

    def _advance(self) -> None:
        """Starts records until the loop must look after those that wait, or results are ready."""
        controller = self.controller
        while True:
            more = controller.advance(self._source if self._has_more else iter(()), TURN_RECORDS)
            self._has_more = self._has_more and more
            if self._is_over or len(self._out.rows) >= self._out_rows:
                self._loop.stop()
                return
            if controller.in_flight or not self._has_more:
                break
        if self._has_more and controller.has_room:
            self._wake()

    def begin(self, key: KeyContext, item: Any, record: Record | None = None) -> Record | None:
        """Runs a call until it is complete (None), or waits: then its record is returned."""
        CURRENT.set(key)
        coroutine = self._call(key.key, item, self._out)  # type: ignore[misc]
        try:
            awaited = coroutine.send(None)
        except StopIteration:
            return None
        except BaseException as error:
            _note(error, key)
            raise
        waiting = Record(key, item, is_begun=True) if record is None else record
        task = self._stepper.task(coroutine, awaited)
        self._running[task] = waiting
        task.add_done_callback(self._complete)
        return waiting

    def _start(self, record: Record) -> bool:
        return self.begin(record.key, record.item, record) is None

    def _complete(self, task: asyncio.Task[Any]) -> None:
        record = self._running.pop(task, None)
        if record is None:
            return  # cancelled after another record's failure
        error = Cancelled("a call of user code was cancelled") if task.cancelled() else task.exception()
        if error is not None:
            _note(error, record.key)
            self._fail(error)
            return
        self._completed += 1
        try:
            self.controller.finish(record)
        except BaseException as failed:
            self._fail(failed)
        self._wake()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._loop.stop()

    def _watch(self, completed: int, oldest: asyncio.Task[Any] | None) -> None:
        """Fails if a record waits since the last look, and none completed meanwhile."""
        if completed == self._completed and oldest is not None and oldest in self._running:
            keys = sorted({repr(record.key.key) for record in self._running.values()})
            self._fail(
                Stalled(
                    f"no row completed for {self._stalled_s:g} s; {len(keys)} keys wait, such as {keys[0]}",
                    hint="give the processor's own waits a timeout (asyncio.timeout), or raise stalled_s",
                )
            )
        else:
            self._set_watch()

    def _set_watch(self) -> None:
        oldest = next(iter(self._running), None)
        self._watching = self._loop.call_later(self._stalled_s, self._watch, self._completed, oldest)

    # ── cells ────────────────────────────────────────────────────────────────────────────────

    def request(self, request: CellRequest) -> None:
        """Adds a request to the batch; the next turn sends it."""
        self.controller.request(request)
        self._wake()

    def _issue(self, requests: list[CellRequest]) -> None:
        self._fetcher.submit(self._fetch_batch, requests)

    def _fetch_batch(self, requests: list[CellRequest]) -> None:
        """Runs in the fetching thread."""
        try:
            values = self._fetch(requests)
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._fail, error)
        else:
            self._loop.call_soon_threadsafe(self._answer, requests, values)

    def _answer(self, requests: list[CellRequest], values: list[list[bytes | None]]) -> None:
        for request, cells in zip(requests, values, strict=True):
            self.controller.answer(partial(request.deliver, cells))
        self._wake()


def _note(error: BaseException, key: KeyContext) -> None:
    error.add_note(f"key {key.key!r}: the processor of the user failed")


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    """Waits for cancelled tasks, and retrieves their errors: the first failure is raised, not these."""
    await asyncio.wait(tasks, timeout=TIMES.cancel_s)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


@contextmanager
def _apart() -> Iterator[None]:
    """Lets a loop run in a thread whose own loop waits for this call, such as a notebook's."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
