"""`applyInPandasWithState`: a function over groups, each with one state and one timeout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.options import Options
from headrace.plan.spec import StoreName
from headrace.plan.work.cells import Cells, Variable
from headrace.spark.build.aggregate import Grouping
from headrace.spark.build.parts import key_of, supported, wire_keys
from headrace.spark.build.processors.processor import (
    KeyedRows,
    check_output_mode,
    is_sized,
    keyed_spec,
    parsed,
    stage_of,
)
from headrace.spark.build.recipe import Blueprint
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.columns import resolve
from headrace.spark.language.plans import watermarks
from headrace.spark.language.windows import event_time
from headrace.spark.processors.group.task import CLOCKS, GroupStatePlan

METHOD = "applyInPandasWithState"


@dataclass(frozen=True, eq=False)
class GroupStateRequest:
    """A function of the user over groups with state."""

    grouping: Grouping
    func: Callable[..., Any]
    output: T.StructType | str
    state: T.StructType | str
    output_mode: str
    timeout: str
    store: StoreName = "auto"

    @property
    def spark(self) -> SparkSession:
        return self.grouping.df.sparkSession

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the operator, without touching the session."""
        grouping, df = self.grouping, self.grouping.df
        marks = supported(df, watermarks(df))
        self._check(bool(marks))
        check_output_mode(self.output_mode, METHOD)
        clock, state = CLOCKS[self.timeout], parsed(self.state, METHOD)
        keys = [key for written in grouping.keys if (key := key_of(df, written)) is not None]
        fields, leaves, _ = wire_keys(list(keys), None)
        work = Cells((Variable("state", "value", state.json()),), clock)
        spec = keyed_spec(grouping, fields, work, marks, options)
        stage, columns = stage_of(df, keys, leaves)
        plan = GroupStatePlan(
            operator=spec.name,
            func=self.func,
            work=work,
            stage=stage,
            state=state,
            output=parsed(self.output, METHOD),
            timeout=self.timeout,
            is_marked=bool(marks),
            zone=str(self.spark.conf.get("spark.sql.session.timeZone")),
        )
        timed = None
        if clock == "eventtime" and grouping.watermark_column is not None:
            timed = resolve(df, grouping.watermark_column, "event time")
        time = None if timed is None else event_time(self.spark, timed)
        rows = KeyedRows(df, stage, leaves, columns, time)
        times = time_inputs([(df, timed)], marks)
        paced_by = None if clock == "none" else clock
        return Blueprint(spec, rows, times, processor=plan, clock=paced_by, sized=is_sized(df, stage))

    def _check(self, is_marked: bool) -> None:
        if self.grouping.window is not None:
            raise QueryError(f"{METHOD} groups by keys only", hint="leave the window out of groupBy")
        if not callable(self.func):
            raise QueryError(
                f"{METHOD} takes a function, not {self.func!r}", hint="def f(key, frames, state): …"
            )
        if self.timeout not in CLOCKS:
            raise QueryError(f"timeoutConf={self.timeout!r}", hint=f"write one of {', '.join(CLOCKS)}")
        if CLOCKS[self.timeout] == "eventtime" and not is_marked:
            raise QueryError(
                f"{METHOD} with EventTimeTimeout needs a watermark",
                hint='add .withWatermark("<event time>", "10 seconds") before groupBy',
            )
