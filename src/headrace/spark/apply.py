"""`applyInArrow` and `applyInPandas`: a function of the user over the rows of one key and window.

The rows are kept in the state host until their window closes; the function runs in Spark's worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.options import Options
from headrace.spark.apply_calls import GroupCalls, Shown, Style
from headrace.spark.columns import Resolved, first_line, resolve
from headrace.spark.explain import remember
from headrace.spark.holistic_plan import check_kept
from headrace.spark.keys import flatten
from headrace.spark.marks import pattern_of
from headrace.spark.operator import (
    Request,
    chosen,
    emit_of,
    key_of,
    make_task,
    name_of,
    session_options,
    supported,
    time_of,
    wire_keys,
)
from headrace.spark.plans import TASK_PREFIX, watermarks
from headrace.spark.project import Blueprint, wire_rows
from headrace.spark.session import prepare
from headrace.spark.windows import TimeWindow, event_time, expected_end, window_of
from headrace.spec import TIME, Field, OperatorSpec

SCHEMA_HINT = 'say it as a StructType, or as text such as "user string, total double"'


@dataclass(frozen=True, eq=False)
class ApplyRequest:
    """What the user asked for; `grouped` says the stream, keys and name, and has no aggregates."""

    grouped: Request
    func: Callable[..., Any]
    schema: T.StructType | str
    style: Style

    @property
    def method(self) -> str:
        return "applyInArrow" if self.style == "arrow" else "applyInPandas"


def build_apply(request: ApplyRequest) -> DataFrame:
    """The request as a streaming DataFrame; raises before anything runs."""
    grouped = request.grouped
    spark = grouped.df.sparkSession
    options = session_options(spark)
    blueprint, calls = draw_apply(request, options)
    marked = pattern_of(request.func)
    blueprint, choice = chosen(blueprint, options, grouped.store, marked)
    task = make_task(spark, blueprint, options, calls)
    prepare(spark, blueprint.spec)
    task.__name__ = TASK_PREFIX + blueprint.spec.name
    try:
        built = wire_rows(grouped.df, blueprint).mapInArrow(task, calls.schema)
    except AnalysisException as error:
        raise QueryError(f"operator {blueprint.spec.name}: {first_line(error)}") from None
    remember(built, blueprint.spec, choice)
    return built


def draw_apply(request: ApplyRequest, options: Options) -> tuple[Blueprint, GroupCalls]:
    """Plan the operator and the calls of its function, without touching the session."""
    grouped, df = request.grouped, request.grouped.df
    schema, takes_key = _schema(request), _takes_key(request)
    window = next((key for key in grouped.keys if isinstance(key, TimeWindow)), None)
    check_kept(request.method, None, window)
    assert window is not None
    marks = supported(df, watermarks(df))
    emit = emit_of(None, window, marks)
    timed = time_of(grouped, window, None, marks)
    assert timed is not None
    keys = [key_of(df, key) for key in grouped.keys]
    fields, leaves, _ = wire_keys(keys, F.lit(None))
    shown, inputs, columns = _inputs(df, _shown_keys(keys), timed)
    expected, ends = expected_end(window, df), None
    if expected is not None:
        ends = f"v{len(inputs)}"
        inputs.append(Field(ends, "timestamp", expected.name))
        columns.append(expected.column)
    spec = OperatorSpec(
        name=name_of(df, grouped.name),
        keys=tuple(fields),
        inputs=tuple(inputs),
        accumulators=(),
        window=replace(window_of(window, df), ends=ends),
        emit=emit,
        timed=True,
        delays_ms=tuple(mark.delay_ms for mark in marks),
        partitions=options.partitions,
        grouped=True,
    )
    zone = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))
    named = tuple(show for show, _ in _shown_keys(keys))
    calls = GroupCalls(spec.name, request.func, request.style, takes_key, named, tuple(shown), schema, zone)
    time, nodes = event_time(df.sparkSession, timed), tuple(mark.node for mark in marks)
    return Blueprint(spec, leaves, columns, time, [], nodes), calls


def _shown_keys(keys: list[Resolved | None]) -> list[tuple[Shown, Resolved]]:
    """How the function sees each key, by the wire's names that `wire_keys` gives."""
    shown: list[tuple[Shown, Resolved]] = []
    number = 0
    for key in keys:
        if key is None:
            continue
        size = len(flatten(key.column, key.type, key.nullable, key.name))
        names = tuple(f"k{number + place}" for place in range(size))
        shown.append((Shown(key.name, key.type, key.nullable, names), key))
        number += size
    return shown


def _inputs(
    df: DataFrame, keys: list[tuple[Shown, Resolved]], timed: Resolved
) -> tuple[list[Shown], list[Field], list[Column]]:
    """All columns of the stream, as shown and as kept; keys and the event time are on the wire already."""
    shown: list[Shown] = []
    fields: list[Field] = []
    columns: list[Column] = []
    for field in df.schema.fields:
        found = resolve(df, F.col("`" + field.name.replace("`", "``") + "`"), f"column {field.name}")
        there = next((show for show, key in keys if _is_same(key, found)), None)
        if there is not None:
            shown.append(replace(there, name=field.name))
            continue
        if isinstance(found.type, T.TimestampType) and timed.same_as(found):
            shown.append(Shown(field.name, found.type, False, (TIME,)))
            continue
        leaves = flatten(found.column, found.type, found.nullable, field.name, is_key=False)
        names = tuple(f"v{len(fields) + place}" for place in range(len(leaves)))
        fields += [Field(name, leaf.type, leaf.label) for name, leaf in zip(names, leaves, strict=True)]
        columns += [leaf.column for leaf in leaves]
        shown.append(Shown(field.name, found.type, found.nullable, names))
    return shown, fields, columns


def _is_same(key: Resolved, column: Resolved) -> bool:
    """Whether a key holds a column's very values; floats of keys are normalised."""
    return key.same_as(column) and not any(word in key.type.simpleString() for word in ("float", "double"))


def _schema(request: ApplyRequest) -> T.StructType:
    said = request.schema
    if isinstance(said, str):
        try:
            said = T.StructType.fromDDL(said)
        except (ParseException, AnalysisException) as error:
            raise QueryError(f"{request.method}: schema {said!r}: {first_line(error)}") from None
    if not isinstance(said, T.StructType) or not said.fields:
        raise QueryError(f"{request.method}: {request.schema!r} is not a schema", hint=SCHEMA_HINT)
    return said


def _takes_key(request: ApplyRequest) -> bool:
    """Whether the function takes (key, rows), and not only rows."""
    hint = "def f(table): … or def f(key, table): …"
    if not callable(request.func):
        raise QueryError(f"{request.method} takes a function, not {request.func!r}", hint=hint)
    parameters = [
        parameter
        for parameter in inspect.signature(request.func).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    if len(needed) not in (1, 2):
        raise QueryError(f"{request.method}: the function needs {len(needed)} arguments", hint=hint)
    return len(needed) == 2
