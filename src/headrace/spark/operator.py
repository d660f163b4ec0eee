"""Builds one operator: checks the request, plans keys, time and accumulators, and puts it into the plan."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import QueryError
from headrace.options import Options, read_options
from headrace.spark.aggregates import Aggregate
from headrace.spark.columns import Resolved, case_insensitive, check_distinct, first_line, resolve
from headrace.spark.combine import combines
from headrace.spark.driver import coordinator_for
from headrace.spark.explain import remember
from headrace.spark.finalise import ORDERED, AccumulatorPlan, wanted
from headrace.spark.holistic_plan import check_kept
from headrace.spark.keys import flatten, rebuild
from headrace.spark.plans import TASK_PREFIX, Watermark, operators_below, watermarks
from headrace.spark.project import Blueprint, result_struct, wire_rows
from headrace.spark.session import prepare
from headrace.spark.task import Task, Then, stateful_task
from headrace.spark.windows import (
    Session,
    TimeWindow,
    event_time,
    expected_end,
    is_wall_time,
    window_column,
    window_of,
)
from headrace.spec import Emit, Field, OperatorSpec
from headrace.store.choose import Choice, Pattern, Said, choose_for


@dataclass(frozen=True, eq=False)
class Request:
    """What the user asked for."""

    df: DataFrame
    watermark_column: str | None
    keys: tuple[str | Column | TimeWindow, ...]
    name: str | None
    emit: Emit | None
    aggregates: tuple[tuple[str, Aggregate], ...]
    store: Said = "auto"


def build(request: Request) -> DataFrame:
    """The request as a streaming DataFrame; raises before anything runs."""
    spark = request.df.sparkSession
    options = session_options(spark)
    blueprint, choice = chosen(draw(request, options), options, request.store)
    task = make_task(spark, blueprint, options)
    prepare(spark, blueprint.spec)
    built = assemble(request.df, blueprint, task)
    remember(built, blueprint.spec, choice)
    return built


def chosen(
    blueprint: Blueprint, options: Options, said: Said, marked: Pattern | None = None
) -> tuple[Blueprint, Choice]:
    """The blueprint with its store, and why it is that one."""
    choice = choose_for(blueprint.spec, said=said, marked=marked, setting=options.store)
    spec = replace(
        blueprint.spec,
        store=choice.store,
        read_ratio=options.read_ratio,
        amplification=options.amplification,
        instances=options.instances,
        combined=combines(blueprint.spec, options.combine),
    )
    return replace(blueprint, spec=spec), choice


def session_options(spark: SparkSession) -> Options:
    context = spark.sparkContext
    conf = {**dict(context.getConf().getAll()), **spark.conf.getAll}
    return read_options(conf, context.defaultParallelism)


def make_task(
    spark: SparkSession, blueprint: Blueprint, options: Options, then: Then | None = None
) -> Task:
    """The seam to the state host: the function that Spark runs per partition."""
    uid, coordinator = str(uuid.uuid4()), coordinator_for(spark)
    return stateful_task(blueprint.spec, uid, blueprint.watermark_nodes, coordinator, options, then)


def assemble(df: DataFrame, blueprint: Blueprint, task: Task) -> DataFrame:
    """Put the operator around `task`; the task's name is how later operators see this one."""
    task.__name__ = TASK_PREFIX + blueprint.spec.name
    try:
        rows = wire_rows(df, blueprint)
        return rows.mapInArrow(task, result_struct(blueprint.spec)).select(*blueprint.output)
    except AnalysisException as error:
        raise QueryError(f"operator {blueprint.spec.name}: {first_line(error)}") from None


def draw(request: Request, options: Options) -> Blueprint:
    """Plan the operator, without touching the session."""
    df, spark = request.df, request.df.sparkSession
    marks = supported(df, watermarks(df))
    window = next((key for key in request.keys if isinstance(key, TimeWindow)), None)
    emit = emit_of(request.emit, window, marks)
    if not request.aggregates:
        raise QueryError("agg needs at least one aggregate", hint="say what to compute: agg(n=hr.count())")
    aggregates = [wanted(df, name, aggregate) for name, aggregate in request.aggregates]
    kept = next((want.where for want in aggregates if want.holistic), None)
    if kept is not None:
        check_kept(kept, emit, window)
    ordered = next((want.where for want in aggregates if want.function in ORDERED), None)
    timed = time_of(request, window, ordered, marks)

    ansi = str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
    plan = AccumulatorPlan(spark, ansi)
    results = plan.add(aggregates)
    expected = expected_end(window, df)
    if expected is not None and kept is None:
        raise QueryError(
            "ends= says when to read the rows of a session, and these aggregates keep no rows",
            hint="leave it out",
        )
    ends = None if expected is None else plan.time(expected)
    keys = [key_of(df, key) for key in request.keys]
    fields, leaves, outputs = wire_keys(
        keys, window_column(spark, timed.type) if window and timed else None
    )
    names = [key.name if key else "window" for key in keys] + [want.name for want in aggregates]
    check_distinct(names, case_insensitive(df))
    spec = OperatorSpec(
        name=name_of(df, request.name),
        keys=tuple(fields),
        inputs=tuple(plan.fields),
        accumulators=tuple(plan.accumulators),
        window=replace(window_of(window, df), ends=ends) if window else None,
        emit=emit,
        timed=timed is not None,
        delays_ms=tuple(mark.delay_ms for mark in marks),
        partitions=options.partitions,
        holistics=tuple(plan.holistics),
    )
    time = event_time(spark, timed) if timed else None
    nodes = tuple(mark.node for mark in marks)
    return Blueprint(spec, leaves, plan.columns, time, [*outputs, *results], nodes)


def supported(df: DataFrame, marks: tuple[Watermark, ...]) -> tuple[Watermark, ...]:
    """The watermarks, unless the session combines them in a way that Headrace does not."""
    policy = str(df.sparkSession.conf.get("spark.sql.streaming.multipleWatermarkPolicy", "min")).lower()
    if len(marks) > 1 and policy != "min":
        raise QueryError(
            f"multipleWatermarkPolicy is {policy}, and the stream has several watermarks",
            hint="Headrace goes by the slowest: set spark.sql.streaming.multipleWatermarkPolicy to min",
        )
    return marks


def emit_of(said: Emit | None, window: TimeWindow | None, marks: tuple[Watermark, ...]) -> Emit:
    if said not in (None, "changes", "final"):
        raise QueryError(f"emit={said!r}", hint='say emit="changes" or emit="final"')
    emit: Emit = said or ("final" if window else "changes")
    if emit == "final" and window is None:
        raise QueryError(
            'emit="final" needs a window: a running aggregate is never final',
            hint='add hr.tumbling(…) to groupBy, or say emit="changes"',
        )
    if emit == "final" and not marks:
        raise QueryError(
            'emit="final" (the default with a window) needs a watermark, or no window would ever close',
            hint='add .withWatermark("<event time>", "10 seconds") before groupBy, or say emit="changes"',
        )
    if isinstance(window, Session) and not marks:
        raise QueryError(
            "sessions need a watermark, or none would ever be over",
            hint='add .withWatermark("<event time>", "10 seconds") before groupBy',
        )
    return emit


def time_of(
    request: Request, window: TimeWindow | None, ordered: str | None, marks: tuple[Watermark, ...]
) -> Resolved | None:
    """The event time, where rows must carry one."""
    if window is None and ordered is None:
        return None
    written: Any = window.on if window and window.on is not None else request.watermark_column
    if written is None:
        what = "the window" if window else ordered
        raise QueryError(
            f"{what} needs an event time, and none is known",
            hint='say .withWatermark("<event time>", …) before groupBy, or tumbling(…, on="<event time>")',
        )
    resolved = resolve(request.df, written, "event time")
    if marks and is_wall_time(resolved.type):
        raise QueryError(
            f"event time {resolved.name} has no time zone, but the stream's watermark has one",
            hint="cast it to timestamp, or leave the watermark out",
        )
    return resolved


def key_of(df: DataFrame, written: str | Column | TimeWindow) -> Resolved | None:
    return None if isinstance(written, TimeWindow) else resolve(df, written, "groupBy")


def wire_keys(
    keys: list[Resolved | None], window: Column | None
) -> tuple[list[Field], list[Column], list[Column]]:
    """Fields and leaves of all keys, and the output columns; None stands for the window."""
    fields: list[Field] = []
    columns: list[Column] = []
    outputs: list[Column] = []
    for key in keys:
        if key is None:
            assert window is not None
            outputs.append(window)
            continue
        start = len(fields)
        for leaf in flatten(key.column, key.type, key.nullable, key.name):
            fields.append(Field(f"k{len(fields)}", leaf.type, leaf.label))
            columns.append(leaf.column)
        named = iter([F.col(field.name) for field in fields[start:]])
        outputs.append(rebuild(key.type, key.nullable, named).alias(key.name))
    return fields, columns, outputs


def name_of(df: DataFrame, said: str | None) -> str:
    below = operators_below(df)
    name = said or f"aggregate-{len(below) + 1}"
    if name in below:
        raise QueryError(
            f"the query has two operators of the name {name}",
            hint="give one of them another name: .name(…)",
        )
    return name
