"""What one operator is: its keys, window and accumulators. Crosses the wire and rests on disk as JSON.

Rows reach the host as Arrow batches of `input_schema`; results leave it as `output_schema`. Everything
that Spark can compute better (struct flattening, float normalisation, avg = sum / count, …) happens in
the JVM around the host, so that the host knows seven accumulators and flat columns only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa

from headrace.types import arrow_type

HASH, TIME = "__hash", "__time"
WINDOW_START, WINDOW_END = "__window_start", "__window_end"

Kind = Literal["count", "sum", "min", "max", "moments", "first", "last"]
Emit = Literal["changes", "final"]
Overflow = Literal["error", "wrap", "null"]


@dataclass(frozen=True)
class Field:
    """A column on the wire (`name`, such as `k0`) and what the user calls it (`label`)."""

    name: str
    type: str
    label: str = ""


@dataclass(frozen=True)
class Accumulator:
    """One running value per key.

    `input` is the name of an input field; None counts rows. `type` is the type of the value kept: the
    input's, but `int64` for count, and for sum one of `int64`, `double`, `duration`, `decimal(38,s)`-like
    types to which the JVM has already cast the input. `moments` keeps (n, mean, m2) of a double.
    `first` and `last` order by event time; of equal times, first keeps the smallest value and last the
    largest (null counts as smallest), so that the result does not depend on arrival order.
    """

    kind: Kind
    input: str | None
    type: str
    overflow: Overflow = "error"


@dataclass(frozen=True)
class Window:
    """Tumbling windows `[start, start + width)` with `start ≡ offset (mod width)`; microseconds."""

    width_us: int
    offset_us: int = 0


@dataclass(frozen=True)
class OperatorSpec:
    """One stateful operator."""

    name: str
    keys: tuple[Field, ...]
    inputs: tuple[Field, ...]
    accumulators: tuple[Accumulator, ...]
    window: Window | None
    emit: Emit
    timed: bool  # rows carry TIME: with a window, or for first and last
    delays_ms: tuple[int, ...]  # one per watermark node below the operator; empty without a watermark
    partitions: int

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> OperatorSpec:
        said: dict[str, Any] = json.loads(text)
        said["keys"] = tuple(Field(**field) for field in said["keys"])
        said["inputs"] = tuple(Field(**field) for field in said["inputs"])
        said["accumulators"] = tuple(Accumulator(**acc) for acc in said["accumulators"])
        said["delays_ms"] = tuple(said["delays_ms"])
        said["window"] = Window(**said["window"]) if said["window"] else None
        return cls(**said)


def input_schema(spec: OperatorSpec) -> pa.Schema:
    """What rows look like on their way to the host."""
    fields = [pa.field(HASH, pa.int64())]
    if spec.timed:
        fields.append(pa.field(TIME, arrow_type("timestamp")))
    fields += [pa.field(f.name, arrow_type(f.type)) for f in (*spec.keys, *spec.inputs)]
    return pa.schema(fields)


def output_schema(spec: OperatorSpec) -> pa.Schema:
    """What results look like on their way back: keys, window bounds, then accumulators `a0`, `a1`, …"""
    fields = [pa.field(f.name, arrow_type(f.type)) for f in spec.keys]
    if spec.window:
        fields += [pa.field(name, arrow_type("timestamp")) for name in (WINDOW_START, WINDOW_END)]
    for index, accumulator in enumerate(spec.accumulators):
        fields += [pa.field(name, arrow_type(kind)) for name, kind in result_columns(index, accumulator)]
    return pa.schema(fields)


def result_columns(index: int, accumulator: Accumulator) -> list[tuple[str, str]]:
    """Names and types of the columns that accumulator number `index` comes back as."""
    if accumulator.kind == "moments":
        return [(f"a{index}_{part}", "double") for part in ("n", "mean", "m2")]
    return [(f"a{index}", accumulator.type)]
