"""The recipe by which every request becomes an operator in Spark's plan.

    draw (check and plan) ─▶ choose the store ─▶ make the task ─▶ rows ─▶ mapInArrow(task) ─▶ output

A request only draws. Everything that touches the session happens here, after the request was checked.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.choice import Choice, Pattern, choose_for
from headrace.plan.frontier import TimeInputs
from headrace.plan.options import Options, read_options
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.plan.types import is_variable
from headrace.spark.bridge.load import LoadedBridge, bridge_for, bridge_reason
from headrace.spark.build.combine import combines
from headrace.spark.build.describe import described
from headrace.spark.build.explain import Built, remember
from headrace.spark.build.project import result_struct
from headrace.spark.build.session import prepare
from headrace.spark.driver.driver import coordinator_for
from headrace.spark.language.changelogs import marked
from headrace.spark.language.columns import first_line
from headrace.spark.language.plans import TASK_PREFIX, WATERMARK_KEY, delaying_of_spark
from headrace.spark.processors.run import WorkerPlan
from headrace.spark.task.task import Task, Then, host_settings, plan_of, shipped, stateful_task
from headrace.wire.compaction import read_secret

Rows = Callable[[OperatorSpec], DataFrame]

WINDOW = "window"


@dataclass(frozen=True, eq=False)
class InWorker:
    """What a worker makes of the host's results, and the schema of that."""

    then: Then
    schema: T.StructType
    unpacked: Sequence[Column] = ()  # the results with packed values as they were; empty: as they are

    def after(self, results: DataFrame) -> DataFrame:
        """What a worker makes of results that are in Spark's plan."""
        rows = results.select(*self.unpacked) if self.unpacked else results
        return rows.mapInArrow(self.then, self.schema)


@dataclass(frozen=True, eq=False)
class Blueprint:
    """An operator that is ready to be put into the plan."""

    spec: OperatorSpec
    rows: Rows  # rows of `input_schema`, each in its partition
    times: TimeInputs
    output: Sequence[Column] = ()  # over the columns of the task's results; empty: as they are
    in_worker: InWorker | None = None
    marked: Pattern | None = None  # the pattern that the user's function is marked with
    processor: WorkerPlan | None = None
    upsert_keys: Sequence[str] | None = None  # of a changelog: the columns that identify a row
    clock: str | None = None  # of the processor's timers; None: it needs no batch without input
    event_time: str | None = None  # an output column that operators above go by
    sized: bool | None = None  # whether rows have a fixed size beside their keys; None: by `spec.inputs`

    @property
    def has_sized_rows(self) -> bool:
        """Whether rows on their way to Python have a fixed size, apart from their keys."""
        if self.sized is not None:
            return self.sized
        return not any(is_variable(field.type) for field in self.spec.inputs)

    @property
    def schema(self) -> T.StructType:
        """The schema of the task's results."""
        if self.processor is not None:
            return self.processor.output
        return result_struct(self.spec) if self.in_task is None else self.in_task.schema

    @property
    def in_task(self) -> InWorker | None:
        """What the operator's own task makes of results; only Spark's plan can unpack values."""
        return None if self.in_worker is None or self.in_worker.unpacked else self.in_worker


class Request(Protocol):
    """The request of the user."""

    @property
    def spark(self) -> SparkSession: ...

    @property
    def store(self) -> StoreName: ...

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the operator, without touching the session."""


def build(request: Request) -> DataFrame:
    """The request as a streaming DataFrame; raises before anything runs."""
    spark = request.spark
    options = session_options(spark)
    blueprint, choice = chosen(request.draw(options), options, request.store)
    in_worker = blueprint.processor is not None
    bridge = None if in_worker and blueprint.clock is None else bridge_for(spark, options.bridge)
    if bridge is None:
        refuse_delayed_rows(blueprint)
    task = make_task(spark, blueprint, options)
    prepare(spark, is_sized=blueprint.has_sized_rows)
    if bridge is None or in_worker:
        built = assemble(
            blueprint,
            lambda rows: in_python(paced(bridge, rows, blueprint), blueprint, task),
        )
        if blueprint.event_time is not None:
            built = built.withMetadata(blueprint.event_time, {WATERMARK_KEY: min(blueprint.spec.delays_ms)})
    else:
        text = described(spark, plan_of(task), coordinator_for(spark), options)
        built = with_event_time(
            assemble(blueprint, lambda rows: in_jvm(bridge, rows, blueprint, text)), blueprint.spec
        )
    if blueprint.upsert_keys is not None:
        built = marked(built, blueprint.upsert_keys)
    python, uid = bridge_reason(spark, options.bridge), plan_of(task).uid
    remember(built, Built(blueprint.spec, choice, options.timing, python, uid, options.prefetch))
    return built


def paced(bridge: LoadedBridge | None, rows: DataFrame, blueprint: Blueprint) -> DataFrame:
    """The rows; Spark runs batches without input where timers of the processor may be due."""
    if bridge is None or blueprint.clock is None:
        return rows
    name, partitions = blueprint.spec.name, blueprint.spec.partitions
    settings = {"name": name, "uid": str(uuid.uuid4()), "partitions": partitions, "clock": blueprint.clock}
    return bridge.pace(rows, json.dumps(settings))


def session_options(spark: SparkSession) -> Options:
    context = spark.sparkContext
    conf = {**dict(context.getConf().getAll()), **spark.conf.getAll}
    options = read_options(conf, context.defaultParallelism)
    if options.compaction == "remote":
        read_secret(Path(options.compaction_secret))
    return options


def chosen(blueprint: Blueprint, options: Options, store: StoreName) -> tuple[Blueprint, Choice]:
    """The blueprint with its store, and the reason for that store."""
    spec = blueprint.spec
    choice = choose_for(spec, named=store, marked=blueprint.marked, setting=options.store)
    spec = replace(
        spec,
        store=choice.store,
        read_ratio=options.reading.ratio,
        read_by=options.reading.by,
        amplification=options.amplification,
        instances=options.instances,
        work=spec.work.combining() if combines(spec, options.combine) else spec.work,
    )
    return replace(blueprint, spec=spec), choice


def make_task(spark: SparkSession, blueprint: Blueprint, options: Options) -> Task:
    """The seam to the state host: the function that Spark runs per partition."""
    uid, coordinator = str(uuid.uuid4()), coordinator_for(spark)
    coordinator.monitor(options)
    then = None if blueprint.in_task is None else blueprint.in_task.then
    times, processor = blueprint.times, blueprint.processor
    task = stateful_task(blueprint.spec, uid, times, coordinator, options, then, processor)
    plan = plan_of(task)
    coordinator.serve_with(host_settings(plan, ""), plan.host_per)
    task.__name__ = TASK_PREFIX + blueprint.spec.name  # later operators recognise this one by it
    return task


def refuse_delayed_rows(blueprint: Blueprint) -> None:
    """Raises where Spark's own operators below emit rows that a Python worker's operator takes for late.

    Spark closes windows by the watermark of the batch before. Such rows are older than the watermark here.
    """
    spec = blueprint.spec
    by_time = spec.window is not None or (spec.timed and spec.work.has_sides)
    if not by_time or not spec.delays_ms:
        return  # no row is ever late
    delaying = delaying_of_spark(blueprint.rows(spec))
    if delaying:
        raise QueryError(
            f"operator {spec.name} has a window over a stateful operator of Spark ({', '.join(delaying)}), "
            "whose rows come a batch later and would be late here",
            hint="set spark.headrace.bridge=jvm, or make the lower step with Headrace too: "
            "hr.stream(…).groupBy(…).agg(…)",
        )


def in_jvm(bridge: LoadedBridge, rows: DataFrame, blueprint: Blueprint, text: str) -> DataFrame:
    """The rows through the operator in the JVM; a function of the user follows in a worker."""
    results = bridge.place(rows, result_struct(blueprint.spec).json(), text)
    return results if blueprint.in_worker is None else blueprint.in_worker.after(results)


def in_python(rows: DataFrame, blueprint: Blueprint, task: Task) -> DataFrame:
    """The rows through the operator's task in a worker; a second one follows where values are unpacked."""
    results = rows.mapInArrow(shipped(task), blueprint.schema)
    if blueprint.in_worker is None or blueprint.in_task is not None:
        return results
    return blueprint.in_worker.after(results)


def with_event_time(built: DataFrame, spec: OperatorSpec) -> DataFrame:
    """Marks the window as event time, as Spark marks its own: its stateful operators above then see it."""
    if spec.window is None or not spec.delays_ms or WINDOW not in built.columns:
        return built
    kind = "spark.sessionWindow" if spec.window.session else "spark.timeWindow"
    return built.withMetadata(WINDOW, {kind: True, WATERMARK_KEY: min(spec.delays_ms)})


def assemble(blueprint: Blueprint, through: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Puts the operator between rows of the wire and the user's columns."""
    try:
        results = through(blueprint.rows(blueprint.spec))
        return results.select(*blueprint.output) if blueprint.output else results
    except AnalysisException as error:
        raise QueryError(f"operator {blueprint.spec.name}: {first_line(error)}") from None
