"""`applyInArrow` and `applyInPandas`: a function of the user over the rows of one key and window.

The rows are kept in the state host until their window closes; the function runs in Spark's worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.options import Options
from headrace.plan.spec import (
    TIME,
    WINDOW_END,
    WINDOW_START,
    Field,
    Grouped,
    OperatorSpec,
    StoreName,
    output_columns,
)
from headrace.plan.types import is_packed
from headrace.spark.build.aggregate import Grouping
from headrace.spark.build.holistic_plan import check_kept
from headrace.spark.build.parts import emit_of, key_of, name_of, supported, time_of, wire_keys
from headrace.spark.build.project import StreamRows
from headrace.spark.build.recipe import Blueprint, InWorker
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.columns import Resolved, first_line, resolve
from headrace.spark.language.keys import flatten, leaf_kinds
from headrace.spark.language.marks import pattern_of
from headrace.spark.language.packing import from_wire
from headrace.spark.language.plans import watermarks
from headrace.spark.language.shown import shown_keys, typed
from headrace.spark.language.types import state_type
from headrace.spark.language.windows import event_time
from headrace.spark.task.apply_calls import GroupCalls, Shown, Style
from headrace.spark.windows.plan import named, plan_window

SCHEMA_HINT = 'write it as a StructType, or as text such as "user string, total double"'


@dataclass(frozen=True, eq=False)
class ApplyRequest:
    """A function of the user over the rows of each group."""

    grouping: Grouping
    func: Callable[..., Any]
    result: T.StructType | str  # the schema that the user wrote
    style: Style
    store: StoreName = "auto"

    @property
    def spark(self) -> SparkSession:
        return self.grouping.df.sparkSession

    @property
    def method(self) -> str:
        return "applyInArrow" if self.style == "arrow" else "applyInPandas"

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the operator and the calls of its function, without touching the session."""
        grouping, df, window = self.grouping, self.grouping.df, self.grouping.window
        schema, takes_key = _schema(self), _takes_key(self)
        check_kept(self.method, None, window)
        assert window is not None
        marks = supported(df, watermarks(df))
        emit = emit_of(None, window, marks)
        timed = time_of(df, grouping.watermark_column, window, None, marks)
        assert timed is not None
        keys = [key_of(df, key) for key in grouping.keys]
        windowed = plan_window(window, df, timed)
        fields, leaves, _ = wire_keys([*keys, *windowed.bounds], F.lit(None))
        shown, inputs, columns = _inputs(df, _shown_keys(keys), timed)

        def window_input(column: Resolved) -> str:
            inputs.append(Field(f"v{len(inputs)}", state_type(column.type, column.name), column.name))
            columns.append(column.column)
            return inputs[-1].name

        in_plan = named(window, windowed, window_input)
        spec = OperatorSpec(
            name=name_of(df, grouping.name),
            keys=tuple(fields),
            inputs=tuple(inputs),
            work=Grouped(),
            window=in_plan,
            emit=emit,
            timed=True,
            delays_ms=tuple(mark.delay_ms for mark in marks),
            partitions=options.partitions,
            shown=shown_keys(typed(keys), fields),
        )
        zone = str(self.spark.conf.get("spark.sql.session.timeZone"))
        key_shown = tuple(show for show, _ in _shown_keys(keys))
        calls = GroupCalls(
            spec.name, self.func, self.style, takes_key, key_shown, tuple(shown), schema, zone
        )
        rows = StreamRows(windowed.df, leaves, columns, event_time(self.spark, timed))
        times, marked = time_inputs([(df, timed)], marks), pattern_of(self.func)
        bounds = dict(zip((WINDOW_START, WINDOW_END), windowed.bound_names(fields), strict=True))
        in_worker = InWorker(calls, schema, _unpacked(spec, (*key_shown, *shown), bounds))
        return Blueprint(spec, rows, times, in_worker=in_worker, marked=marked)


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
        column = resolve(df, F.col("`" + field.name.replace("`", "``") + "`"), f"column {field.name}")
        key_shown = next((show for show, key in keys if _is_same(key, column)), None)
        if key_shown is not None:
            shown.append(replace(key_shown, name=field.name))
            continue
        if isinstance(column.type, T.TimestampType) and timed.same_as(column):
            shown.append(Shown(field.name, column.type, False, (TIME,)))
            continue
        leaves = flatten(column.column, column.type, column.nullable, field.name, is_key=False)
        names = tuple(f"v{len(fields) + place}" for place in range(len(leaves)))
        fields += [Field(name, leaf.type, leaf.label) for name, leaf in zip(names, leaves, strict=True)]
        columns += [leaf.column for leaf in leaves]
        shown.append(Shown(field.name, column.type, column.nullable, names))
    return shown, fields, columns


def _unpacked(spec: OperatorSpec, shown: tuple[Shown, ...], bounds: dict[str, str]) -> list[Column]:
    """Results with packed columns as values again; none if results are as the function needs them.

    `bounds` has the columns with the window's bounds, by the names under which the function reads them.
    """
    columns = output_columns(spec)
    if WINDOW_START in bounds.values() and not any(is_packed(column.type) for column in columns):
        return []
    kinds: dict[str, T.DataType] = {}
    for show in shown:
        kinds.update(zip(show.leaves, leaf_kinds(show.type, show.nullable), strict=True))
    return [
        from_wire(F.col(column.name), kinds[column.name]).alias(column.name)
        if is_packed(column.type)
        else F.col(bounds.get(column.name, column.name)).alias(column.name)
        for column in columns
    ]


def _is_same(key: Resolved, column: Resolved) -> bool:
    """Whether a key holds a column's very values; floats of keys are normalised."""
    return key.same_as(column) and not any(word in key.type.simpleString() for word in ("float", "double"))


def _schema(request: ApplyRequest) -> T.StructType:
    schema = request.result
    if isinstance(schema, str):
        try:
            schema = T.StructType.fromDDL(schema)
        except (ParseException, AnalysisException) as error:
            raise QueryError(f"{request.method}: schema {schema!r}: {first_line(error)}") from None
    if not isinstance(schema, T.StructType) or not schema.fields:
        raise QueryError(f"{request.method}: {request.result!r} is not a schema", hint=SCHEMA_HINT)
    return schema


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
