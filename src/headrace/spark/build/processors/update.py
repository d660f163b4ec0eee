"""`updateInArrow` and `updateInPandas`: a vectorised function over the rows and the state of many keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.choice import Pattern
from headrace.plan.options import Options
from headrace.plan.spec import StoreName
from headrace.plan.work.cells import Cells, Variable
from headrace.spark.build.aggregate import Grouping
from headrace.spark.build.parts import key_of, supported, wire_keys
from headrace.spark.build.processors.processor import KeyedRows, is_sized, keyed_spec, parsed, stage_of
from headrace.spark.build.recipe import Blueprint
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.marks import pattern_of
from headrace.spark.language.plans import watermarks
from headrace.spark.processors.vector.task import VectorPlan


@dataclass(frozen=True, eq=False)
class UpdateRequest:
    """A vectorised function of the user over keyed state."""

    grouping: Grouping
    func: Callable[..., Any]
    state: T.StructType | str
    output: T.StructType | str
    pandas: bool
    store: StoreName = "auto"

    @property
    def spark(self) -> SparkSession:
        return self.grouping.df.sparkSession

    @property
    def method(self) -> str:
        return "updateInPandas" if self.pandas else "updateInArrow"

    def _mark(self) -> Pattern | None:
        marked = pattern_of(self.func)
        if marked == "range_read":
            raise QueryError(
                f"@hr.range_read on a function of {self.method}: it gets all state rows of its keys, so "
                "there is no range of event time to read",
                hint="mark it @hr.append to add state rows, or read ranges over windows with applyInArrow",
            )
        return marked

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the operator, without touching the session."""
        grouping, df = self.grouping, self.grouping.df
        if grouping.window is not None:
            raise QueryError(f"{self.method} groups by keys only", hint="leave the window out of groupBy")
        if not callable(self.func):
            raise QueryError(
                f"{self.method} takes a function, not {self.func!r}", hint="def f(rows, state): …"
            )
        state, output = parsed(self.state, self.method), parsed(self.output, self.method)
        marks = supported(df, watermarks(df))
        keys = [key for written in grouping.keys if (key := key_of(df, written)) is not None]
        fields, leaves, _ = wire_keys(list(keys), None)
        marked = self._mark()
        appends = marked == "append"
        work = Cells((Variable("state", "list" if appends else "value", state.json()),), "none")
        spec = keyed_spec(grouping, fields, work, marks, options)
        stage, columns = stage_of(df, keys, leaves)
        key_fields = T.StructType([T.StructField(key.name, key.type, key.nullable) for key in keys])
        zone = str(self.spark.conf.get("spark.sql.session.timeZone"))
        plan = VectorPlan(
            spec.name, self.func, work, stage, key_fields, state, output, self.pandas, zone, appends
        )
        times = time_inputs([(df, None)], marks)
        rows = KeyedRows(df, stage, leaves, columns, None)
        marked = None if appends else marked  # the cells of a list are a layout of their own
        return Blueprint(spec, rows, times, processor=plan, marked=marked, sized=is_sized(df, stage))
