"""`transformWithState` and `transformWithStateInPandas`: a user's processor over keyed state.

Rows stay in Spark's worker; only keys travel to the host. `init` runs once on the driver, on a copy,
to collect the state variables. It runs again in every task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.errors import QueryError
from headrace.plan.options import Options
from headrace.plan.spec import HASH, TIME, Field, OperatorSpec, StoreName
from headrace.plan.types import is_packed
from headrace.plan.work.cells import CELL_FIELD, VALUE_FIELD, Cells
from headrace.spark.asynchronous.processor import AsyncProcessor
from headrace.spark.build.aggregate import Grouping
from headrace.spark.build.parts import key_of, name_of, supported, wire_keys
from headrace.spark.build.processors.initial import InitialState, initial_state
from headrace.spark.build.project import hash_of, placed
from headrace.spark.build.recipe import Blueprint
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.columns import Resolved, first_line, resolve
from headrace.spark.language.plans import Watermark, watermarks
from headrace.spark.language.windows import event_time
from headrace.spark.processors.blocks import Stage
from headrace.spark.processors.handle import TIME_MODES, Declaring
from headrace.spark.processors.run import ProcessorPlan, Style

AS_IS = (T.LongType(), T.IntegerType(), T.StringType())  # keys of these types travel as they are
SIZED = (T.NumericType, T.BooleanType, T.DatetimeType)
SCHEMA_HINT = 'write it as a StructType, or as text such as "user string, total double"'


@dataclass(frozen=True, eq=False)
class ProcessorRequest:
    """A processor of the user over the rows of each key."""

    grouping: Grouping
    processor: StatefulProcessor
    output: T.StructType | str
    output_mode: str
    time_mode: str
    style: Style
    store: StoreName = "auto"
    initial: Any = None
    event_time: str = ""

    @property
    def spark(self) -> SparkSession:
        return self.grouping.df.sparkSession

    @property
    def method(self) -> str:
        return "transformWithState" if self.style == "row" else "transformWithStateInPandas"

    def _refuse_frames(self) -> None:
        if self.style == "pandas" and isinstance(self.processor, AsyncProcessor):
            raise QueryError(
                f"{self.method} does not take an hr.AsyncProcessor", hint="call transformWithState"
            )

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the operator, without touching the session."""
        grouping, df = self.grouping, self.grouping.df
        if grouping.window is not None:
            raise QueryError(
                f"{self.method} groups by keys only", hint="leave the window out of groupBy; use timers"
            )
        self._refuse_frames()
        mode = _checked_mode(self.time_mode)
        check_output_mode(self.output_mode, self.method)
        output = parsed(self.output, self.method)
        marks = supported(df, watermarks(df))
        if mode == "eventtime" and not marks:
            raise QueryError(
                f"{self.method} with timeMode EventTime needs a watermark",
                hint='add .withWatermark("<event time>", "10 seconds") before groupBy',
            )
        output_time = _output_time(self.event_time, output, mode, bool(marks))
        work = declared(self.processor, mode, self.method)
        keys = [key for written in grouping.keys if (key := key_of(df, written)) is not None]
        initial = initial_state(self.initial, keys, options.bridge)
        fields, leaves, _ = wire_keys(list(keys), None)
        spec = keyed_spec(grouping, fields, work, marks, options)
        timed = None
        if mode == "eventtime" and grouping.watermark_column is not None:
            timed = resolve(df, grouping.watermark_column, "event time")
        stage, columns = stage_of(df, keys, leaves, share=initial is None)
        plan = ProcessorPlan(
            operator=spec.name,
            processor=self.processor,
            work=work,
            style=self.style,
            stage=stage,
            output=output,
            zone=str(self.spark.conf.get("spark.sql.session.timeZone")),
            initial=None if initial is None else initial.stage,
            event_time=output_time,
        )
        time = None if timed is None else event_time(self.spark, timed)
        rows = KeyedRows(df, stage, leaves, columns, time, initial)
        clock = None if mode == "none" and output_time is None else mode
        times = time_inputs([(df, timed)], marks)
        blueprint = Blueprint(spec, rows, times, processor=plan, sized=is_sized(df, stage))
        return replace(blueprint, clock=clock, event_time=output_time)


def keyed_spec(
    grouping: Grouping, fields: list[Field], work: Cells, marks: tuple[Watermark, ...], options: Options
) -> OperatorSpec:
    """An operator of user code over keyed state."""
    for field in fields:
        if is_packed(field.type):
            raise QueryError(
                f"key {field.label} is {field.type.removeprefix('packed ')}, and user code over state "
                "takes plain keys and structs of them",
                hint="group by a text of it, such as F.to_json(…)",
            )
    return OperatorSpec(
        name=name_of(grouping.df, grouping.name),
        keys=tuple(fields),
        inputs=(CELL_FIELD, VALUE_FIELD),
        work=work,
        window=None,
        emit="changes",
        timed=False,
        delays_ms=tuple(mark.delay_ms for mark in marks),
        partitions=options.partitions,
    )


@dataclass(frozen=True, eq=False)
class KeyedRows:
    """Rows of a stream in their partitions. Spark refuses to sort a stream: the task orders them by key."""

    df: DataFrame
    stage: Stage
    leaves: list[Column]
    columns: list[Column]
    time: Column | None
    initial: InitialState | None = None

    def __call__(self, spec: OperatorSpec) -> DataFrame:
        names = [field.name for field in spec.keys]
        time = [] if self.time is None else [self.time.alias(TIME)]
        leaves = [column.alias(name) for column, name in zip(self.leaves, names, strict=True)]
        rows = self.df.select(*time, *leaves, *self.columns)
        if self.initial is not None:
            rows = self.initial.joined(rows, names)
        rows = rows.select(hash_of(spec).alias(HASH), *rows.columns)
        return placed(rows.drop(*(wire_key for wire_key, _ in self.stage.shared)), spec)


def stage_of(
    df: DataFrame, keys: list[Resolved], leaves: list[Column], *, share: bool = True
) -> tuple[Stage, list[Column]]:
    """The columns of the task's rows: all of the stream, and keys that are no column of it.

    With `share`, a key whose wire form is a column of the stream is sent once.
    """
    names = [field.name for field in df.schema.fields]
    columns = [F.col("`" + name.replace("`", "``") + "`") for name in names]
    resolved = [resolve(df, column, f"column {name}") for name, column in zip(names, columns, strict=True)]
    shown: list[str] = []
    extra: list[Column] = []
    for at, key in enumerate(keys):
        same = next((index for index, column in enumerate(resolved) if key.same_as(column)), None)
        if same is None:
            extra.append(key.column.alias(f"g{at}"))
        shown.append(f"g{at}" if same is None else f"c{same}")
    wire = tuple(f"k{at}" for at in range(len(leaves)))
    stage = Stage(
        wire_keys=wire,
        keys=tuple(shown),
        columns=tuple(f"c{at}" for at in range(len(names))),
        names=tuple(names),
        key_names=tuple(key.name for key in keys),
        shared=_shared(keys, wire, shown) if share else (),
    )
    return stage, [*(column.alias(f"c{at}") for at, column in enumerate(columns)), *extra]


def _shared(keys: list[Resolved], wire: tuple[str, ...], shown: list[str]) -> tuple[tuple[str, str], ...]:
    """Wire keys that are equal to a column, and that column."""
    if len(wire) != len(keys):
        return ()  # a key has several leaves
    named = zip(keys, wire, shown, strict=True)
    return tuple((wire_key, column) for key, wire_key, column in named if key.type in AS_IS)


def is_sized(df: DataFrame, stage: Stage) -> bool:
    """Whether rows have a fixed size, apart from their keys."""
    fields = zip(stage.columns, df.schema.fields, strict=True)
    return all(isinstance(field.dataType, SIZED) for column, field in fields if column not in stage.keys)


def parsed(written: Any, method: str) -> T.StructType:
    """A schema that the user wrote as a StructType or as text."""
    if isinstance(written, str):
        try:
            written = T.StructType.fromDDL(written)
        except (ParseException, AnalysisException) as error:
            raise QueryError(f"{method}: schema {written!r}: {first_line(error)}") from None
    if not isinstance(written, T.StructType) or not written.fields:
        raise QueryError(f"{method}: {written!r} is not a schema", hint=SCHEMA_HINT)
    return written


def declared(processor: Any, mode: str, method: str) -> Cells:
    """The state variables of a processor, in the order of their declaration, and those it deletes."""
    if not isinstance(processor, StatefulProcessor):
        raise QueryError(
            f"{method} takes a StatefulProcessor, not {type(processor).__name__}",
            hint="derive the class from pyspark.sql.streaming.StatefulProcessor and pass an instance",
        )
    copy = cloudpickle.loads(cloudpickle.dumps(processor))
    handle = Declaring(lambda schema: parsed(schema, method), mode)
    copy.init(handle)
    copy.close()
    return Cells(tuple(handle.variables.values()), mode, tuple(sorted(handle.deleted)))


def _checked_mode(written: str) -> str:
    mode = str(written).lower()
    if mode not in TIME_MODES:
        raise QueryError(
            f"[STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE] Unknown time mode {written}",
            hint="accepted time modes are 'none', 'processingTime', 'eventTime'",
        )
    return mode


def check_output_mode(written: str, method: str) -> None:
    """Raises for an output mode other than Append and Update."""
    if str(written).lower() not in ("append", "update"):
        raise QueryError(
            f"{method} with outputMode {written}", hint='write outputMode="Append" or outputMode="Update"'
        )


def _output_time(written: str, output: T.StructType, mode: str, is_marked: bool) -> str | None:
    """The event time among the output columns, which operators above go by."""
    if not written:
        return None
    if written not in output.names or not isinstance(output[written].dataType, T.TimestampType):
        raise QueryError(
            f"eventTimeColumnName={written!r} is not a timestamp of outputStructType",
            hint="name a timestamp column of the output",
        )
    if not is_marked:
        raise QueryError(
            f"eventTimeColumnName={written!r} needs a watermark below the processor",
            hint='add .withWatermark("<event time>", "10 seconds") before groupBy',
        )
    if mode == "processingtime":
        raise QueryError(
            f"eventTimeColumnName={written!r} with timeMode ProcessingTime: no watermark passes such a "
            "processor, so no window above it would ever close",
            hint="use timeMode EventTime or None",
        )
    return written
