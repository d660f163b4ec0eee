"""One task of `applyInPandasWithState`: the rows of every group, then the groups whose timeout has passed.

A timeout is a timer one ms after it, because a group times out when the clock has passed its timeout. A
call that changes neither state nor timeout leaves the timeout as it was. The group then times out again in
the next batch, as in Spark.
Threads: one task's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from headrace.plan.work.cells import Cells
from headrace.spark.processors.blocks import Feed, Stage
from headrace.spark.processors.convert import RowConverter
from headrace.spark.processors.group.frames import GroupFrames
from headrace.spark.processors.requests import Talk
from headrace.spark.processors.run import BatchTimes, KeyedTask
from headrace.spark.processors.timers import Timers

CLOCKS = {
    GroupStateTimeout.NoTimeout: "none",
    GroupStateTimeout.ProcessingTimeTimeout: "processingtime",
    GroupStateTimeout.EventTimeTimeout: "eventtime",
}

Function = Callable[[tuple[Any, ...], Iterator[Any], GroupState], Any]


@dataclass(frozen=True, eq=False)
class GroupStatePlan:
    """A function over groups and how to run it; part of Spark's closure."""

    operator: str
    func: Function
    work: Cells
    stage: Stage
    state: T.StructType
    output: T.StructType
    timeout: str
    is_marked: bool  # whether the stream has a watermark
    zone: str

    def task(self, talk: Talk, times: BatchTimes) -> GroupStateTask:
        """The function over one partition of one batch."""
        return GroupStateTask(self, talk, times)


class GroupStateTask(KeyedTask):
    """Runs a function over the groups of one partition of one batch."""

    def __init__(self, plan: GroupStatePlan, talk: Talk, times: BatchTimes) -> None:
        super().__init__(plan.operator, plan.work, talk, times)
        self._plan = plan
        self._frames = GroupFrames(plan.stage, plan.output, plan.zone)
        self._rows = RowConverter(plan.state)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of the function; the state is written when the iterator is exhausted."""
        feed = Feed(self._plan.stage, batches, self._late_ms)
        yield from self._keys(feed, self._frames, self._with_rows, self._frames.keys)
        self.late_rows = feed.late_rows
        timers = Timers(self._plan.stage, self._requests, self._keyed, self._until_ms, self._shown)
        yield from timers.fire(self._timed_out, self._frames)
        yield from self._frames.take()

    def _with_rows(self, key: tuple[Any, ...], frames: Iterator[Any]) -> None:
        self._call(key, frames, has_timed_out=False)

    def _timed_out(self, key: tuple[Any, ...], time_ms: int) -> None:
        self._call(key, iter([self._frames.empty()]), has_timed_out=True)
        if self._keyed.timers == [time_ms]:
            self._keyed.remind(time_ms)
            self._keyed.dirty = True

    def _call(self, key: tuple[Any, ...], frames: Iterator[Any], *, has_timed_out: bool) -> None:
        state = self._state(has_timed_out)
        try:
            self._frames.add(self._frames.checked(self._plan.func(key, frames, state)))
        except Exception as error:
            self._noted(error, key)
            raise
        self._keep(state)

    def _state(self, has_timed_out: bool) -> GroupState:
        times, entry = self._times, self._keyed.entries[1]
        return GroupState(
            optionalValue=None if entry is None else self._rows.load(entry),
            batchProcessingTimeMs=times.timestamp_ms,
            eventTimeWatermarkMs=self._watermark_ms,
            timeoutConf=self._plan.timeout,
            hasTimedOut=has_timed_out,
            watermarkPresent=self._plan.is_marked,
            defined=entry is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=GroupState.NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=self._plan.state,
        )

    @property
    def _watermark_ms(self) -> int:
        if not self._plan.is_marked:
            return int(GroupState.NO_TIMESTAMP)
        return 0 if self._times.watermark_ms is None else self._times.watermark_ms

    def _keep(self, state: GroupState) -> None:
        """Takes over what the function did with the state; nothing if it did nothing."""
        timeout = int(state._timeout_timestamp)
        has_timeout = timeout != GroupState.NO_TIMESTAMP
        if not (state._updated or state._removed or has_timeout):
            return
        keyed = self._keyed
        keyed.entries[1] = self._rows.store(state.get) if state.exists else None
        keyed.timers = [timeout + 1] if has_timeout else []
        if has_timeout:
            keyed.remind(timeout + 1)
        keyed.dirty = True

    def _shown(self, due: pa.Table) -> list[Any]:
        return self._frames.shown_keys(due.select(list(self._plan.stage.wire_keys)))
