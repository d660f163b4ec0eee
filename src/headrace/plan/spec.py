"""What one operator is: its keys, window and work. Crosses the wire and is stored on disk as JSON.

The host receives rows as Arrow batches of `input_schema` and returns results of `output_schema`. What
Spark computes better (struct flattening, float normalisation, avg = sum / count, …) happens in the JVM
around the host, so that the host handles flat columns only. `OperatorSpec.work` answers every question
that differs between kinds of operators.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.columns import (
    ALONE,
    GROUP,
    HASH,
    KEYLESS_HASH,
    KIND,
    LEFT,
    RIGHT,
    ROWS,
    SIDE,
    TIME,
    WINDOW_END,
    WINDOW_START,
    Field,
    OutputColumn,
    wire_columns,
)
from headrace.plan.reading import DEFAULT_RATIO, ReadBy
from headrace.plan.shown import ShownColumn
from headrace.plan.types import arrow_type
from headrace.plan.window import Window
from headrace.plan.work.accumulator import Accumulator, Kind, Overflow, partial_name, result_columns
from headrace.plan.work.base import Work
from headrace.plan.work.fold import Fold
from headrace.plan.work.grouped import Grouped
from headrace.plan.work.holistic import Holistic, HolisticKind, HolisticResult
from headrace.plan.work.joins.window_join import How, WindowJoin
from headrace.plan.work.registry import pop_work
from headrace.plan.work.stores import StoreName

__all__ = [
    "ALONE",
    "GROUP",
    "HASH",
    "KEYLESS_HASH",
    "KIND",
    "LEFT",
    "RIGHT",
    "ROWS",
    "SIDE",
    "SPECS_KEPT",
    "TIME",
    "WINDOW_END",
    "WINDOW_START",
    "Accumulator",
    "Emit",
    "Field",
    "Fold",
    "Grouped",
    "Holistic",
    "HolisticKind",
    "HolisticResult",
    "How",
    "Kind",
    "OperatorSpec",
    "OutputColumn",
    "Overflow",
    "StoreName",
    "Window",
    "WindowJoin",
    "Work",
    "input_columns",
    "input_schema",
    "output_columns",
    "output_schema",
    "partial_name",
    "result_columns",
    "rows_in",
]

SPECS_KEPT = 256  # specs whose text and schemas are cached

Emit = Literal["changes", "final", "changelog", "complete"]


@dataclass(frozen=True)
class OperatorSpec:
    """One stateful operator."""

    name: str
    keys: tuple[Field, ...]
    inputs: tuple[Field, ...]
    work: Work
    window: Window | None
    emit: Emit
    timed: bool  # rows carry TIME: with a window, or for first and last
    delays_ms: tuple[int, ...]  # one per watermark node below the operator; empty without a watermark
    partitions: int
    store: StoreName = "rmw"
    read_ratio: float = DEFAULT_RATIO  # aur: the part of the live sessions that is read ahead; 0 for none
    read_by: ReadBy = "rate"  # aur: how the ratio is used, and which sessions are read together
    amplification: float = 1.5  # aur: the largest size of the session log, as a multiple of its live rows
    instances: int = 1  # aur: the number of logs that sessions are split into
    shown: tuple[ShownColumn, ...] = ()  # keys and results for readers of state; changes no state

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> OperatorSpec:
        return _from_json(text)


# A spec crosses the wire with every task of every batch, and there are few different ones.
@lru_cache(maxsize=SPECS_KEPT)
def _to_json(spec: OperatorSpec) -> str:
    members: dict[str, Any] = {
        field.name: getattr(spec, field.name) for field in fields(spec) if field.name != "work"
    }
    members["keys"] = [asdict(field) for field in spec.keys]
    members["inputs"] = [asdict(field) for field in spec.inputs]
    members["window"] = spec.window.to_json() if spec.window else None
    members["shown"] = [asdict(column) for column in spec.shown]
    if not spec.shown:
        del members["shown"]  # as operators without it were written
    if spec.read_by == "rate":
        del members["read_by"]
    return json.dumps({**members, **spec.work.to_json()}, sort_keys=True)


@lru_cache(maxsize=SPECS_KEPT)
def _from_json(text: str) -> OperatorSpec:
    members: dict[str, Any] = json.loads(text)
    work = pop_work(members)
    members["keys"] = tuple(Field(**field) for field in members["keys"])
    members["inputs"] = tuple(Field(**field) for field in members["inputs"])
    members["delays_ms"] = tuple(members["delays_ms"])
    members["window"] = Window(**members["window"]) if members["window"] else None
    members["shown"] = tuple(ShownColumn.of(column) for column in members.get("shown", ()))
    return OperatorSpec(work=work, **members)


@lru_cache(maxsize=SPECS_KEPT)
def input_schema(spec: OperatorSpec) -> pa.Schema:
    """The schema of rows on their way to the host; combined rows have a column per accumulator."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in input_columns(spec)])


def input_columns(spec: OperatorSpec) -> list[tuple[str, str]]:
    """Names and types of `input_schema`: hash, time, marks of the work, keys, inputs."""
    time = [(TIME, "timestamp")] if spec.timed else []
    return [
        (HASH, "int64"),
        *time,
        *spec.work.mark_columns(),
        *wire_columns(spec.keys),
        *spec.work.input_columns(spec.inputs),
    ]


def rows_in(batch: pa.RecordBatch) -> int:
    """How many rows of the stream a batch of `input_schema` has."""
    at = batch.schema.get_field_index(ROWS)
    return batch.num_rows if at < 0 else int(pc.sum(batch.column(at)).as_py() or 0)


@lru_cache(maxsize=SPECS_KEPT)
def output_schema(spec: OperatorSpec) -> pa.Schema:
    """The schema of results on their way back."""
    return pa.schema([column.arrow for column in output_columns(spec)])


def output_columns(spec: OperatorSpec) -> list[OutputColumn]:
    """The columns of results: keys, window bounds, those of the work, then the kind of a change."""
    columns = [OutputColumn(field.name, field.type) for field in spec.keys]
    if spec.window:
        columns += [OutputColumn(name, "timestamp", nullable=False) for name in (WINDOW_START, WINDOW_END)]
    columns += spec.work.output_columns(spec.inputs)
    return [*columns, OutputColumn(KIND, "int8", nullable=False)] if spec.emit == "changelog" else columns
