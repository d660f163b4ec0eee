"""What one operator is: its keys, window and what it computes. Crosses the wire and rests on disk as JSON.

Rows reach the host as Arrow batches of `input_schema`; results leave it as `output_schema`. Everything
that Spark can compute better (struct flattening, float normalisation, avg = sum / count, …) happens in
the JVM around the host, so that the host knows seven accumulators and flat columns only.

An operator either *folds* (accumulators only: a row changes one state row per key) or *keeps* its rows
until their window closes (holistic results, joins, and functions of the user).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.types import arrow_type

HASH, TIME = "__hash", "__time"
WINDOW_START, WINDOW_END = "__window_start", "__window_end"
SIDE, GROUP = "__side", "__group"
KEYLESS_HASH = 42  # of a key without columns, as xxhash64 begins
ROWS = "__rows"  # how many rows a combined one stands for
LEFT, RIGHT = 0, 1  # what SIDE says of a row
SPECS_KEPT = 256  # of which text and schemas are remembered
ALONE = 2  # added to SIDE: a key is null, so that the row meets no other

Kind = Literal["count", "sum", "min", "max", "moments", "first", "last"]
Emit = Literal["changes", "final"]
Overflow = Literal["error", "wrap", "null"]
HolisticKind = Literal["percentile", "approx_percentile", "mode", "top", "list", "set"]
How = Literal["inner", "left", "right", "full"]
StoreName = Literal["auto", "rmw", "aar", "aur", "range", "memory", "rocksdb"]


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
class Holistic:
    """A result that needs all values of a group at once.

    `type` is the type of one value. `numbers` are its parameters: the percentages of a percentile (with the
    accuracy last for an approximate one), the k of top. Percentiles come back as a list if `many`.
    """

    kind: HolisticKind
    input: str
    type: str
    numbers: tuple[float, ...] = ()
    many: bool = False
    by: str | None = None  # top: the input that orders; None orders by the values themselves
    ties: bool = False  # top: rows that equal the last one in what orders come too


@dataclass(frozen=True)
class Join:
    """Rows of two streams meet in a window; SIDE says which stream a row is of.

    The columns of a side name the inputs they travel in. Columns of the two sides share an input where
    their types are equal, and the event time needs none (its name is TIME): a row is as wide as its wider
    side, not as both.
    """

    how: How
    left: tuple[Field, ...]
    right: tuple[Field, ...]


@dataclass(frozen=True)
class Window:
    """Fixed windows `[start, start + width)`, one every `slide`, or sessions; all in microseconds.

    Fixed: `start ≡ offset (mod slide)`; a slide of the width is a tumbling window. A session of a key lasts
    from its first row to `width` after its last one: the width is the gap. `lateness_us` is for how long
    after it closed a window still takes rows. What is expected of a session matters for reading ahead only.
    """

    width_us: int
    offset_us: int = 0
    slide_us: int = 0  # 0: the width
    session: bool = False
    lateness_us: int = 0
    ends: str | None = None  # sessions: the input that says when one is expected to end, at the earliest

    @property
    def every_us(self) -> int:
        return self.slide_us or self.width_us

    @property
    def slice_us(self) -> int:
        """The width of a slice: every window is a row of whole slices."""
        return math.gcd(self.width_us, self.every_us)


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
    holistics: tuple[Holistic, ...] = ()
    join: Join | None = None
    grouped: bool = False  # results are the rows of each group, for a function of the user
    store: StoreName = "rmw"
    read_ratio: float = 0.02  # of the live sessions, how many are read ahead (aur); 0 for none
    amplification: float = 1.5  # times the live rows that a log of sessions may take on disk (aur)
    instances: int = 1  # that the log of sessions is split into (aur)
    combined: bool = False  # rows were combined by key and slice before they were shuffled

    @property
    def keeps(self) -> bool:
        """Whether rows are kept as they are until their window closes."""
        return bool(self.holistics) or self.join is not None or self.grouped

    def to_json(self) -> str:
        return _written(self)

    @classmethod
    def from_json(cls, text: str) -> OperatorSpec:
        return _read(text)


# A spec crosses the wire with every task of every batch, and there are few of them.
@lru_cache(maxsize=SPECS_KEPT)
def _written(spec: OperatorSpec) -> str:
    return json.dumps(asdict(spec), sort_keys=True)


@lru_cache(maxsize=SPECS_KEPT)
def _read(text: str) -> OperatorSpec:
    said: dict[str, Any] = json.loads(text)
    said["keys"] = tuple(Field(**field) for field in said["keys"])
    said["inputs"] = tuple(Field(**field) for field in said["inputs"])
    said["accumulators"] = tuple(Accumulator(**acc) for acc in said["accumulators"])
    said["delays_ms"] = tuple(said["delays_ms"])
    said["window"] = Window(**said["window"]) if said["window"] else None
    said["holistics"] = tuple(_holistic(one) for one in said["holistics"])
    said["join"] = _join(said["join"]) if said["join"] else None
    return OperatorSpec(**said)


def _holistic(said: dict[str, Any]) -> Holistic:
    return Holistic(**{**said, "numbers": tuple(said["numbers"])})


def _join(said: dict[str, Any]) -> Join:
    return Join(said["how"], *(tuple(Field(**field) for field in said[side]) for side in ("left", "right")))


@lru_cache(maxsize=SPECS_KEPT)
def input_schema(spec: OperatorSpec) -> pa.Schema:
    """What rows look like on their way to the host; combined ones have a column per accumulator."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in input_columns(spec)])


def input_columns(spec: OperatorSpec) -> list[tuple[str, str]]:
    """Names and types of `input_schema`."""
    columns = [(HASH, "int64")]
    if spec.timed:
        columns.append((TIME, "timestamp"))
    if spec.join:
        columns.append((SIDE, "int8"))
    if spec.combined:
        columns.append((ROWS, "int64"))
    columns += [(field.name, field.type) for field in spec.keys]
    if spec.combined:
        return columns + [(partial_name(at), one.type) for at, one in enumerate(spec.accumulators)]
    return columns + [(field.name, field.type) for field in spec.inputs]


def partial_name(index: int) -> str:
    """The column of a combined row that accumulator number `index` reads."""
    return f"p{index}"


def rows_in(batch: pa.RecordBatch) -> int:
    """How many rows of the stream a batch of `input_schema` has."""
    at = batch.schema.get_field_index(ROWS)
    return batch.num_rows if at < 0 else int(pc.sum(batch.column(at)).as_py() or 0)


@lru_cache(maxsize=SPECS_KEPT)
def output_schema(spec: OperatorSpec) -> pa.Schema:
    """What results look like on their way back: keys, window bounds, then what the operator computes.

    Accumulators come as `a0`, `a1`, …, holistic results as `h0`, `h1`, …, the columns of a join's sides as
    `l0`, … and `r0`, …. A grouped operator returns its inputs under their own names, after GROUP, a number
    that changes with the group.
    """
    fields = [pa.field(f.name, arrow_type(f.type)) for f in spec.keys]
    if spec.window:
        fields += [pa.field(name, arrow_type("timestamp")) for name in (WINDOW_START, WINDOW_END)]
    if spec.grouped:
        fields += [pa.field(GROUP, pa.int64()), pa.field(TIME, arrow_type("timestamp"))]
    if spec.join:
        fields += [pa.field(name, arrow_type(kind)) for name, kind in join_columns(spec.join)]
    if spec.grouped:
        fields += [pa.field(f.name, arrow_type(f.type)) for f in spec.inputs]
    for index, accumulator in enumerate(spec.accumulators):
        fields += [pa.field(name, arrow_type(kind)) for name, kind in result_columns(index, accumulator)]
    for index, holistic in enumerate(spec.holistics):
        fields.append(pa.field(f"h{index}", holistic_type(holistic)))
    return pa.schema(fields)


def join_columns(join: Join) -> list[tuple[str, str]]:
    """Names and types of the columns that a join returns beside keys and window."""
    sides = (("l", join.left), ("r", join.right))
    return [(f"{side}{index}", f.type) for side, fields in sides for index, f in enumerate(fields)]


def holistic_type(holistic: Holistic) -> pa.DataType:
    """The type of a holistic result."""
    of_one = pa.float64() if holistic.kind == "percentile" else arrow_type(holistic.type)
    listed = holistic.kind in ("top", "list", "set") or holistic.many
    return pa.list_(of_one) if listed else of_one


def result_columns(index: int, accumulator: Accumulator) -> list[tuple[str, str]]:
    """Names and types of the columns that accumulator number `index` comes back as."""
    if accumulator.kind == "moments":
        return [(f"a{index}_{part}", "double") for part in ("n", "mean", "m2")]
    return [(f"a{index}", accumulator.type)]
