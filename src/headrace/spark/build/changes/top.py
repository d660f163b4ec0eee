"""`groupBy(…).top(n, by=…)`: the first rows of each key in an order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import QueryError
from headrace.plan.options import Options
from headrace.plan.spec import Emit, Field, OperatorSpec, StoreName
from headrace.plan.work.changes.top import RANK, Order, Ranking, Top
from headrace.spark.build.aggregate import Grouping
from headrace.spark.build.changes.row_columns import row_columns
from headrace.spark.build.parts import key_of, name_of, supported, time_of, wire_keys
from headrace.spark.build.project import StreamRows
from headrace.spark.build.recipe import Blueprint
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.changelogs import KIND_COLUMN, Changelog, changelog_of, kind_column
from headrace.spark.language.columns import Resolved, case_insensitive, check_distinct, resolve
from headrace.spark.language.plans import watermarks
from headrace.spark.language.types import state_type
from headrace.spark.language.windows import event_time

N_MAX = 1_000_000
_DIRECTED = re.compile(r" (ASC|DESC) NULLS (FIRST|LAST)'>$")  # how a Column with a direction is printed


@dataclass(frozen=True)
class Written:
    """What orders rows, as the user wrote it."""

    column: str | Column
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, eq=False)
class TopRequest:
    """The first rows of each key."""

    grouping: Grouping
    n: int
    by: tuple[str | Column, ...]
    ranking: Ranking
    rank: str | None
    emit: Emit
    store: StoreName = "auto"

    @property
    def spark(self) -> SparkSession:
        return self.grouping.df.sparkSession

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the operator, without touching the session."""
        self._check()
        grouping, df = self.grouping, self.grouping.df
        marks = supported(df, watermarks(df), takes_changes=True)
        changelog = changelog_of(df)
        timed = None
        if grouping.watermark_column is not None:
            timed = time_of(df, grouping.watermark_column, None, "top", marks)
        keys = [key_of(df, key) for key in grouping.keys]
        fields, leaves, _ = wire_keys(keys, None)
        names = [name for name in df.columns if changelog is None or name != changelog.kind]
        inputs, columns, outputs = row_columns(df, names)
        order = self._order(inputs, columns)
        sign = _sign(changelog, inputs, columns)
        shown = [F.col(RANK).alias(self.rank)] if self.rank is not None else []
        kinds = [kind_column()] if self.emit == "changelog" else []
        check_distinct(
            [*names, *([self.rank] if self.rank else []), *([KIND_COLUMN] if kinds else [])],
            case_insensitive(df),
        )
        spec = OperatorSpec(
            name=name_of(df, grouping.name),
            keys=tuple(fields),
            inputs=tuple(inputs),
            work=Top(self.n, order, self.ranking, self.rank is not None, sign),
            window=None,
            emit=self.emit,
            timed=timed is not None,
            delays_ms=tuple(mark.delay_ms for mark in marks),
            partitions=options.partitions,
        )
        time = event_time(self.spark, timed) if timed else None
        rows = StreamRows(df, leaves, columns, time)
        times = time_inputs([(df, None)], marks)
        upsert = self._upsert_keys(keys) if kinds else None
        return Blueprint(spec, rows, times, [*outputs, *shown, *kinds], upsert_keys=upsert)

    def _check(self) -> None:
        if self.grouping.window is not None:
            raise QueryError(
                "top groups by keys only",
                hint="leave the window out of groupBy, or rank the rows of a window with hr.top(…) in agg",
            )
        if isinstance(self.n, bool) or not isinstance(self.n, int) or not 0 < self.n <= N_MAX:
            raise QueryError(f"top: n is {self.n!r}", hint=f"write a whole number from 1 to {N_MAX}")
        if self.ranking not in get_args(Ranking):
            raise QueryError(
                f"top: ranking={self.ranking!r}", hint=f"write one of {', '.join(get_args(Ranking))}"
            )
        if self.emit not in ("changes", "changelog"):
            raise QueryError(f"top: emit={self.emit!r}", hint='write emit="changes" or emit="changelog"')
        if not self.by:
            raise QueryError("top needs an order", hint='name what to rank by: .top(10, by="price")')

    def _upsert_keys(self, keys: Sequence[Resolved | None]) -> list[str]:
        """The columns that identify a row: none, if ranks can repeat or are not shown."""
        if self.rank is None or self.ranking != "row_number":
            return []
        named = [key.name for key in keys if key is not None]
        return [*named, self.rank] if set(named) <= set(self.grouping.df.columns) else []

    def _order(self, inputs: list[Field], columns: list[Column]) -> tuple[Order, ...]:
        """Inputs that order rows; expressions become inputs of their own."""
        df, order = self.grouping.df, []
        for written in self.by:
            direction = written_order(df, written)
            resolved = resolve(df, direction.column, "top by")
            kind = state_type(resolved.type, f"top by {resolved.name}")
            name = next((f.name for f in inputs if (f.label, f.type) == (resolved.name, kind)), None)
            if name is None:
                name = f"v{len(inputs)}"
                inputs.append(Field(name, kind, f"by {resolved.name}"))
                columns.append(resolved.column)
            order.append(Order(name, direction.descending, direction.nulls_first))
        return tuple(order)


def _sign(changelog: Changelog | None, inputs: list[Field], columns: list[Column]) -> str | None:
    """The input with the sign of a change; None if all rows are new."""
    if changelog is None:
        return None
    name = f"v{len(inputs)}"
    inputs.append(Field(name, "int64", "sign"))
    columns.append(F.when(changelog.is_new, F.lit(1)).otherwise(F.lit(-1)).cast("bigint"))
    return name


def written_order(df: DataFrame, written: Any) -> Written:
    """The direction of an order: as a Column declares it, else the largest first and nulls last."""
    if not isinstance(written, Column) or not _DIRECTED.search(str(written)):
        return Written(written, descending=True, nulls_first=False)
    plan = df.sort(written)._jdf.queryExecution().analyzed()
    order = plan.order().apply(0)
    convert = df.sparkSession._jvm.org.apache.spark.sql.classic.ExpressionUtils
    down = "DESC" in str(order.direction().sql())
    child = type(written)(convert.column(order.child()))
    return Written(child, down, "FIRST" in str(order.nullOrdering().sql()))
