"""Aggregates of groups: checks the request, and plans keys, time, accumulators and holistic results."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import QueryError
from headrace.plan.options import Options
from headrace.plan.shown import ShownColumn
from headrace.plan.spec import Emit, Fold, Holistic, OperatorSpec, StoreName, Work
from headrace.plan.work.changes.distinct import Distinct
from headrace.plan.work.changes.retracting import Retracting
from headrace.spark.build.changes.retracting_plan import RetractingPlan, check_retracting
from headrace.spark.build.finalise import AccumulatorPlan
from headrace.spark.build.holistic_plan import check_kept
from headrace.spark.build.parts import emit_of, key_of, name_of, supported, time_of, wire_keys
from headrace.spark.build.planned import ORDERED, Planned, check_distinct_values, order_of, planned
from headrace.spark.build.project import StreamRows
from headrace.spark.build.recipe import Blueprint
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.aggregates import Aggregate
from headrace.spark.language.changelogs import KIND_COLUMN, changelog_of, kind_column
from headrace.spark.language.columns import Resolved, case_insensitive, check_distinct
from headrace.spark.language.distinct import ApproximateCount, estimated, kept
from headrace.spark.language.plans import watermarks
from headrace.spark.language.shown import shown_keys, typed
from headrace.spark.language.windows import TimeWindow, event_time, window_column
from headrace.spark.windows.plan import named, plan_window


@dataclass(frozen=True, eq=False)
class Grouping:
    """A stream and its groups: keys, and at most one window."""

    df: DataFrame
    watermark_column: str | None
    keys: tuple[str | Column | TimeWindow, ...]
    name: str | None

    @property
    def window(self) -> TimeWindow | None:
        return next((key for key in self.keys if isinstance(key, TimeWindow)), None)


@dataclass(frozen=True, eq=False)
class AggregateRequest:
    """Aggregates of each group."""

    grouping: Grouping
    emit: Emit | None
    aggregates: tuple[tuple[str, Aggregate], ...]
    store: StoreName = "auto"

    @property
    def spark(self) -> SparkSession:
        return self.grouping.df.sparkSession

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the operator, without touching the session."""
        grouping, df, window = self.grouping, self.grouping.df, self.grouping.window
        marks = supported(df, watermarks(df), takes_changes=True)
        emit = emit_of(self.emit, window, marks)
        changelog = changelog_of(df)
        aggregates = self._aggregates(emit)
        if changelog is not None:
            check_retracting(aggregates, window)
        whole = next((one.where for one in aggregates if one.holistic), None)
        if whole is not None:
            check_kept(whole, emit, window)
        check_distinct_values(aggregates, window)
        ordered = next((one.where for one in aggregates if one.function in ORDERED), None)
        timed = time_of(df, grouping.watermark_column, window, ordered, marks)
        aggregates = [self._conditional(one, timed) for one in aggregates]

        ansi = str(self.spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
        plan = (
            AccumulatorPlan(self.spark, ansi) if changelog is None else RetractingPlan(df, changelog, ansi)
        )
        results = self._estimated(plan.add(aggregates))
        changing = changelog is not None or emit == "changelog"
        in_order = window is not None and window.emits_once
        work = _distinct(plan, _retracting(plan) if changing else _work(plan, in_order))
        windowed = plan_window(window, df, timed)
        if windowed.ends is not None and whole is None:
            raise QueryError(
                "ends= sets when to read the rows of a session, and these aggregates keep no rows",
                hint="leave it out",
            )
        keys = [key_of(df, key) for key in grouping.keys]
        fields, leaves, outputs = wire_keys([*keys, *windowed.bounds], F.lit(None))
        if window and timed:
            shown = window_column(self.spark, timed.type, windowed.bound_names(fields))
            outputs = [shown if key is None else out for key, out in zip(keys, outputs, strict=False)]
        names = [key.name if key else "window" for key in keys] + [one.name for one in aggregates]
        upsert = [key.name if key else "window" for key in keys] if emit == "changelog" else None
        check_distinct([*names, KIND_COLUMN] if emit == "changelog" else names, case_insensitive(df))
        in_plan = named(window, windowed, plan.window_input) if window else None
        spec = OperatorSpec(
            name=name_of(df, grouping.name),
            keys=tuple(fields),
            inputs=tuple(plan.fields),
            work=work,
            window=in_plan,
            emit=emit,
            timed=timed is not None,
            delays_ms=() if emit == "complete" else tuple(mark.delay_ms for mark in marks),
            partitions=options.partitions,
            shown=(*shown_keys(typed(keys), fields), *self._shown(plan.shown_values(aggregates))),
        )
        time = event_time(self.spark, timed) if timed else None
        rows = StreamRows(windowed.df, leaves, plan.columns, time)
        times = time_inputs([(df, timed if window else None)], () if emit == "complete" else marks)
        kinds = [kind_column()] if emit == "changelog" else []
        return Blueprint(spec, rows, times, [*outputs, *results, *kinds], upsert_keys=upsert)

    def _aggregates(self, emit: Emit) -> list[Planned]:
        if not self.aggregates:
            raise QueryError(
                "agg needs at least one aggregate", hint="name what to compute: agg(n=hr.count())"
            )
        df, wraps = self.grouping.df, kept if emit == "final" else _unchanged
        return [planned(df, name, wraps(aggregate)) for name, aggregate in self.aggregates]

    def _estimated(self, results: list[Column]) -> list[Column]:
        """Results with counts of coupons turned into estimates."""
        return [
            estimated(result, one.buckets).alias(name) if isinstance(one, ApproximateCount) else result
            for result, (name, one) in zip(results, self.aggregates, strict=True)
        ]

    def _shown(self, values: list[ShownColumn]) -> list[ShownColumn]:
        """What readers of state make of accumulators, with the buckets of estimates."""
        buckets = {name: one.buckets for name, one in self.aggregates if isinstance(one, ApproximateCount)}
        return [
            replace(value, kind="estimate", buckets=buckets[value.name]) if value.name in buckets else value
            for value in values
        ]

    def _conditional(self, plan: Planned, timed: Resolved | None) -> Planned:
        """First and last with a condition order by the event time of the rows that meet it."""
        if plan.condition is None or timed is None:
            return plan
        time = event_time(self.spark, timed)
        return replace(plan, by=order_of(self.grouping.df, time, plan.condition, plan.where))


def _work(plan: AccumulatorPlan, in_order: bool) -> Work:
    """A fold, unless rows are kept: for holistic results, or because their order is not known yet."""
    accumulators = tuple(plan.accumulators)
    kept = plan.holistics or in_order
    return Holistic(tuple(plan.holistics), accumulators) if kept else Fold(accumulators)


def _unchanged(aggregate: Aggregate) -> Aggregate:
    return aggregate


def _distinct(plan: AccumulatorPlan, work: Work) -> Work:
    names = tuple(plan.distincts.values())
    return Distinct(work, names) if names and isinstance(work, Fold | Retracting) else work


def _retracting(plan: AccumulatorPlan) -> Work:
    shown = len(plan.accumulators)
    rows = plan.count_rows()
    return Retracting(tuple(plan.accumulators), rows, hides_rows=rows >= shown)
