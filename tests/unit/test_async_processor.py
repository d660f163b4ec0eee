"""Protects asynchronous processors without Spark: calls that wait and calls that do not give what plain
dicts give one row at a time; order per key, timers, failures, stalls, clean-up."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processor_model import Model
from pyspark.sql import Row

import headrace as hr
from headrace.plan.times import Times
from headrace.spark.asynchronous import drive
from headrace.spark.processors import blocks, states

ROWS, OUT = "id long, what string, k long, v long, wait long", "id long, seen string"
WHATS = ("value", "append", "put", "update", "remove", "clear")


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists and maps in many cells, and several blocks per batch."""
    monkeypatch.setattr(states, "LIST_CHUNK", 3)
    monkeypatch.setattr(states, "MAP_BUCKET", 4)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 16)


class Everything(hr.AsyncProcessor):
    """Waits as often as a row says, then changes one state; emits all states of the key."""

    max_in_flight = 7
    max_active = 3

    def init(self, handle: Any) -> None:
        self.last = handle.getValueState("last", "v long")
        self.items = handle.getListState("items", "v long")
        self.entries = handle.getMapState("entries", "k long", "v long")

    async def process(self, key: Any, row: Any, out: Any) -> None:
        for _ in range(row.wait):
            await asyncio.sleep(0)
        await self._change(row)
        last, items, entries = await asyncio.gather(
            self.last.get(), self.items.get(), self.entries.iterator()
        )
        out.emit(Row(id=key[0], seen=str((last, [v for (v,) in items], sorted(entries)))))

    async def _change(self, row: Any) -> None:
        match row.what:
            case "value":
                await self.last.update((row.v,))
            case "append":
                await self.items.appendValue((row.v,))
            case "put":
                await self.items.put([(row.v,), (row.k,)])
            case "update":
                await self.entries.updateValue((row.k,), (row.v,))
            case "remove":
                await self.entries.removeKey((row.k,))
            case _:
                await asyncio.gather(self.last.clear(), self.items.clear(), self.entries.clear())


def seen(model: Model) -> str:
    entries = sorted(((k,), (v,)) for k, v in model.entries.items())
    return str((model.last, model.items, entries))


rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 5),
        "what": st.sampled_from([*WHATS, *["append", "update"] * 4]),
        "k": st.integers(0, 40),
        "v": st.integers(-5, 5),
        "wait": st.sampled_from([0, 0, 0, 1, 2, 5]),
    }
)


@settings(deadline=None, max_examples=50)
@given(batches=st.lists(st.lists(rows, max_size=60), max_size=3))
def test_every_key_sees_what_one_row_at_a_time_gives(batches: list[list[dict[str, Any]]]) -> None:
    tester = hr.ProcessorTester(Everything(), ROWS, "id", OUT)
    models: dict[int, Model] = defaultdict(Model)
    for batch in batches:
        expected, actual = defaultdict(list), defaultdict(list)
        for row in batch:
            models[row["id"]].change(row)
            expected[row["id"]].append(seen(models[row["id"]]))
        for one in tester.batch(batch):
            actual[one.id].append(one.seen)
        assert actual == expected
    for key, model in models.items():
        assert tester.value("last", key) == model.last
        assert [v for (v,) in tester.items("items", key)] == model.items
        assert {k: v for (k,), (v,) in tester.entries("entries", key).items()} == model.entries


class Timed(hr.AsyncProcessor):
    """A timer per row; both the rows and the timers wait."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long", 50)

    async def process(self, key: Any, row: Any, out: Any) -> None:
        await self.handle.registerTimer(row.k)
        await asyncio.sleep(0.001 * row.v)
        await self.count.update((row.v,))
        out.emit(Row(id=key[0], seen=f"row {row.v}"))

    async def onTimer(self, key: Any, time_ms: int, out: Any) -> None:
        await asyncio.sleep(0)
        if time_ms == 4:
            await self.handle.deleteTimer(99)
        at = self.handle.timerValues.getCurrentProcessingTimeInMs()
        out.emit(Row(id=key[0], seen=f"timer {time_ms} at {at} of {await self.handle.listTimers()}"))


def test_timers_fire_after_all_rows_in_the_order_of_each_key() -> None:
    tester = hr.ProcessorTester(Timed(), ROWS, "id", OUT, "ProcessingTime")
    batch = [{"id": key, "k": at, "v": 3 - key} for key in (1, 2) for at in (4, 2, 99)]
    seen = tester.batch(batch, processing_time_ms=10)
    assert [row.seen.split()[0] for row in seen] == ["row"] * 6 + ["timer"] * 4
    assert [row.seen for row in seen if row.id == 1][3:] == [
        "timer 2 at 10 of [2, 4, 99]",
        "timer 4 at 10 of [4]",
    ]
    assert tester.timers(1) == []
    assert tester.value("count", 1, at_ms=59) == (2,)
    assert tester.batch([], processing_time_ms=70) == []
    assert tester.value("count", 1) is None  # its time to live is over


class Own(hr.AsyncProcessor):
    """Runs a function of the test."""

    stalled_s = 0.3

    def __init__(self, call: Any) -> None:
        self.call, self.events = call, list[str]()

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "v long")

    async def connect(self) -> None:
        await asyncio.sleep(0)
        self.events.append("connected")

    async def disconnect(self) -> None:
        await asyncio.sleep(0)
        self.events.append("disconnected")

    async def process(self, key: Any, row: Any, out: Any) -> None:
        await self.call(self, row)
        out.emit(Row(id=key[0], seen=str(row.v)))


def run(call: Any, count: int = 3) -> list[Row]:
    processor = Own(call)
    try:
        tester = hr.ProcessorTester(processor, ROWS, "id", OUT)
        return tester.batch([{"id": n, "v": n} for n in range(count)])
    finally:
        assert processor.events == ["connected", "disconnected"]


async def with_timeout(processor: Own, row: Any) -> None:
    async with asyncio.timeout(10):  # before the call has waited: there is no task yet
        await asyncio.sleep(0.001)
        await processor.total.update((row.v,))


async def with_timeout_over(processor: Own, row: Any) -> None:
    try:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(10)
    except TimeoutError:
        return
    raise AssertionError("the timeout did not end the wait")


async def with_group(processor: Own, row: Any) -> None:
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(processor.total.update((row.v,))) for _ in range(2)]
    assert all(task.done() for task in both)


async def with_thread(processor: Own, row: Any) -> None:
    assert await asyncio.to_thread(lambda: row.v + 1) == row.v + 1


async def with_shielded_wait(processor: Own, row: Any) -> None:
    await asyncio.wait_for(asyncio.shield(asyncio.sleep(0.001)), 10)
    assert asyncio.current_task() is not None


@pytest.mark.parametrize(
    "call", [with_timeout, with_timeout_over, with_group, with_thread, with_shielded_wait]
)
def test_asyncio_works_from_the_first_line_of_a_call(call: Any) -> None:
    assert sorted(row.seen for row in run(call)) == ["0", "1", "2"]


@pytest.mark.parametrize("waits", [0, 2])
def test_a_failure_names_the_key_and_cancels_the_others(waits: int) -> None:
    ended = list[int]()

    async def call(processor: Own, row: Any) -> None:
        if row.v == 2:
            for _ in range(waits):
                await asyncio.sleep(0)
            raise ValueError("two")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(row.v)

    with pytest.raises(ValueError, match="two") as failed:
        run(call)
    assert "key (2,)" in "".join(failed.value.__notes__)
    assert "operator tester" in failed.value.__notes__
    assert sorted(ended) == [0, 1]


def test_a_call_that_never_ends_fails_the_batch_and_is_named() -> None:
    async def call(processor: Own, row: Any) -> None:
        if row.v == 1:
            await asyncio.Event().wait()

    with pytest.raises(drive.Stalled, match=r"such as \(1,\)"):
        run(call)


def test_a_call_that_ignores_its_cancellation_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "TIMES", Times(cancel_s=0.05))

    async def call(processor: Own, row: Any) -> None:
        while row.v == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if asyncio.get_running_loop().is_closed():
                    raise
        raise ValueError(row.v)

    with pytest.raises(ValueError, match="0"):
        run(call, 2)


def test_a_call_that_cancels_itself_fails_the_batch() -> None:
    async def call(processor: Own, row: Any) -> None:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    with pytest.raises(drive.Cancelled):
        run(call, 1)


def test_a_processor_runs_inside_of_a_running_loop() -> None:
    """A notebook's cell runs in a loop."""

    async def cell() -> int:
        return len(run(with_timeout)) + len(asyncio.all_tasks())

    assert asyncio.run(cell()) == 4


def test_many_tasks_leave_no_thread_and_no_loop_behind() -> None:
    run(with_thread, 1)
    threads, files = threading.active_count(), psutil.Process().num_fds()
    for _ in range(1000):
        run(with_thread, 1)
    assert threading.active_count() <= threads
    assert psutil.Process().num_fds() <= files  # a loop has a selector and a pair of sockets


def test_a_hot_key_with_more_records_than_the_limit_keeps_its_order() -> None:
    async def call(processor: Own, row: Any) -> None:
        before = await processor.total.get()
        await asyncio.sleep(0)
        await processor.total.update(((before[0] if before else 0) + 1,))

    hot = [{"id": 0, "v": n} for n in range(6001)]
    cold = [{"id": n, "v": n} for n in range(1, 50)]
    tester = hr.ProcessorTester(Own(call), ROWS, "id", OUT)
    seen = tester.batch([*hot[:3000], *cold, *hot[3000:]])
    assert [row.seen for row in seen if row.id == 0] == [str(n) for n in range(6001)]
    assert tester.value("total", 0) == (6001,)
    assert len(seen) == 6050


def test_the_bypass_makes_no_task() -> None:
    async def in_memory(processor: Own, row: Any) -> None:
        before = await processor.total.get()
        await processor.total.update((row.v + (before[0] if before else 0),))
        assert not isinstance(asyncio.current_task(), asyncio.Task)

    async def waiting(processor: Own, row: Any) -> None:
        await asyncio.sleep(0)
        assert isinstance(asyncio.current_task(), asyncio.Task)

    assert len(run(in_memory, 500)) == len(run(waiting, 500)) == 500


def test_pysparks_engine_and_frames_are_refused() -> None:
    with pytest.raises(hr.QueryError, match="only Headrace runs"):
        Own(with_timeout).handleInputRows((), iter(()), None)
