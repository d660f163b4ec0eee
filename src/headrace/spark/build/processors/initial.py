"""The initial state of a processor: rows of a batch DataFrame that join the stream in its first batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.options import Bridge
from headrace.spark.bridge.load import bridge_for, bridge_reason
from headrace.spark.build.parts import wire_keys
from headrace.spark.language.columns import Resolved, resolve
from headrace.spark.processors.blocks import Stage
from headrace.spark.processors.initial import INITIAL

HINT = 'pass a grouped batch DataFrame: initialState=first.groupBy("user")'


@dataclass(frozen=True, eq=False)
class InitialState:
    """Rows of the initial state; `bridge` is the Spark session's setting."""

    df: DataFrame
    keys: tuple[Resolved, ...]
    bridge: Bridge

    @property
    def stage(self) -> Stage:
        """The columns of the initial state in a task's rows."""
        names = tuple(field.name for field in self.df.schema.fields)
        return Stage(
            wire_keys=tuple(f"k{at}" for at in range(len(self._leaves))),
            keys=tuple(f"g{at}" for at in range(len(self.keys))),
            columns=tuple(f"c{at}" for at in range(len(names))),
            names=names,
            key_names=tuple(key.name for key in self.keys),
        )

    @property
    def _leaves(self) -> list[Column]:
        _, leaves, _ = wire_keys(list(self.keys), None)
        return leaves

    def joined(self, rows: DataFrame, leaves: Sequence[str]) -> DataFrame:
        """The stream's rows and those of the initial state; the latter only in the first batch."""
        names = ["`" + field.name.replace("`", "``") + "`" for field in self.df.schema.fields]
        folded = F.struct(
            *(F.col(name).alias(f"c{at}") for at, name in enumerate(names)),
            *(key.column.alias(f"g{at}") for at, key in enumerate(self.keys)),
        ).alias(INITIAL)
        keys = [column.alias(name) for column, name in zip(self._leaves, leaves, strict=True)]
        first = self._first_batch(self.df.select(folded, *keys))
        kind = first.schema[INITIAL].dataType
        nothing = [
            F.col(field.name)
            if field.name in leaves
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in rows.schema.fields
        ]
        stream = rows.withColumn(INITIAL, F.lit(None).cast(kind))
        return stream.union(first.select(*nothing, INITIAL))

    def _first_batch(self, df: DataFrame) -> DataFrame:
        loaded = bridge_for(self.df.sparkSession, self.bridge)
        if loaded is None:
            raise QueryError(
                f"initialState needs the JVM operator: {bridge_reason(self.df.sparkSession, self.bridge)}",
                hint="set spark.headrace.bridge to auto or jvm; or stream the first state as rows",
            )
        return loaded.first_batch(df)


def initial_state(written: Any, keys: Sequence[Resolved], bridge: Bridge) -> InitialState | None:
    """The initial state as the user wrote it, or an error that names what does not fit."""
    if written is None:
        return None
    if not isinstance(written, GroupedData):
        raise QueryError(f"initialState is a {type(written).__name__}", hint=HINT)
    df: DataFrame = written._df
    if df.isStreaming:
        raise QueryError("initialState is a streaming DataFrame", hint=HINT)
    columns = _grouping_columns(df, written)
    resolved = tuple(resolve(df, column, "initialState") for column in columns)
    of_stream, of_state = [key.type for key in keys], [key.type for key in resolved]
    if of_stream != of_state:
        raise QueryError(
            f"initialState is grouped by {_texts(of_state)}, and the stream by {_texts(of_stream)}",
            hint="group both by columns of the same types, in the same order",
        )
    return InitialState(df, resolved, bridge)


def _grouping_columns(df: DataFrame, grouped: GroupedData) -> list[Column]:
    """The columns that a grouped DataFrame is grouped by."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = df.sparkSession._jvm
    expressions = grouped._jgd.groupingExprs()
    to_column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    return [ClassicColumn(to_column(expressions.apply(at))) for at in range(expressions.size())]


def _texts(types: Sequence[T.DataType]) -> str:
    return ", ".join(kind.simpleString() for kind in types) or "nothing"
