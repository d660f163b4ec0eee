"""What an operator was when its state began, so that a restart with another one is refused by name.

The record `<query>/<operator>/operator.json` is written once and never changed. `differences` decides, and
knows no storage. What may change: the watermark's delay, the emit mode, and names on the wire.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, zip_longest

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.clock import Clock, SystemClock
from headrace.errors import BlobMissing, OperatorChanged, StateMissing
from headrace.format.names import operator_record
from headrace.format.record import corrupt, decode_record, encode_record
from headrace.spec import TIME, Accumulator, Field, Holistic, OperatorSpec, Window
from headrace.store.choose import adds, layout_of

FORMAT_VERSION = 1
_KIND = "operator"


def ensure_operator(
    blobs: Blobs,
    query: str,
    spec: OperatorSpec,
    *,
    create: bool = True,
    clock: Clock | None = None,
    retry: Retry | None = None,
) -> OperatorSpec:
    """The recorded operator; writes the record if there is none and `create` allows it.

    Raises `OperatorChanged` when `spec` cannot go on with the recorded operator's state.
    """
    recorded = read_operator(blobs, query, spec.name)
    name = operator_record(query, spec.name)
    if recorded is None and not create:
        raise StateMissing(
            f"{blobs.root}/{name} is missing, but operator {spec.name!r} has committed batches",
            hint="set spark.headrace.state.location to where this query's state is, bring it back from a "
            "backup, or start again with a new checkpoint location",
        )
    if recorded is None:
        data = encode_record(_KIND, FORMAT_VERSION, {"spec": spec.to_json()})
        held = put_or_read(blobs, name, data, clock=clock or SystemClock(), retry=retry or Retry())
        recorded = _decode(held, f"{blobs.root}/{name}")
    refuse_changes(recorded, spec)
    return recorded


def read_operator(blobs: Blobs, query: str, operator: str) -> OperatorSpec | None:
    """The recorded operator, or None when there is no record."""
    name = operator_record(query, operator)
    try:
        return _decode(blobs.get(name), f"{blobs.root}/{name}")
    except BlobMissing:
        return None


def refuse_changes(old: OperatorSpec, new: OperatorSpec) -> None:
    """Raise `OperatorChanged` with every difference, if there is one."""
    found = differences(old, new)
    if found:
        raise OperatorChanged(
            f"operator {new.name!r} is not the one that wrote its state: " + "; ".join(found),
            hint="the state was not touched: put the operator back as it was, or start the changed query "
            "with a new checkpoint location",
        )


def differences(old: OperatorSpec, new: OperatorSpec) -> list[str]:
    """What keeps `new` from using the state of `old`, for people; empty when nothing does."""
    if _work(old) != _work(new):
        return [f"it was {_work(old)}, is now {_work(new)}"]
    found = [
        *_changes("key", [_column(field) for field in old.keys], [_column(field) for field in new.keys]),
        *_changes("aggregate", _aggregates(old), _aggregates(new)),
        *_joins(old, new),
    ]
    if old.grouped:
        kept = [[_column(field) for field in spec.inputs] for spec in (old, new)]
        found += _changes("column", *kept)
    if _unnamed(old.window) != _unnamed(new.window):
        found.append(f"the window was {_window(old.window)}, is now {_window(new.window)}")
    if len(old.delays_ms) != len(new.delays_ms):
        found.append(f"watermarks below it were {len(old.delays_ms)}, are now {len(new.delays_ms)}")
    if old.partitions != new.partitions:
        found.append(
            f"partitions were {old.partitions}, are now {new.partitions} "
            f"(set spark.headrace.partitions back to {old.partitions})"
        )
    if old.emit != new.emit and adds(old) != adds(new):
        found.append(f"emit was {old.emit!r}, is now {new.emit!r}: state of final windows has another form")
    if _files(old) != _files(new):
        found.append(
            f"the store was {old.store}, is now {new.store} "
            f"(say .store({old.store!r}) on the operator, or set spark.headrace.store back)"
        )
    return found


def _files(spec: OperatorSpec) -> str:
    """Whose files the state is in: the memory store writes those of the layout that it holds.

    With auto they may be of any layout by now, and only the versions know.
    """
    return layout_of(spec) if spec.store == "memory" else spec.store


Part = tuple[str, str]  # what the user calls it, and what it is


def _changes(noun: str, old: list[Part], new: list[Part]) -> list[str]:
    found = []
    for number, (before, after) in enumerate(zip_longest(old, new), start=1):
        if before == after:
            continue
        if before is None:
            found.append(f"{noun} #{number} {_said(after)} is new")
        elif after is None:
            found.append(f"{noun} #{number} {_said(before)} is gone")
        elif noun != "aggregate" and before[0] == after[0]:
            found.append(f"{noun} {before[0]} was {before[1]}, is now {after[1]}")
        else:
            found.append(f"{noun} #{number} was {_said(before)}, is now {_said(after)}")
    return found


def _said(part: Part) -> str:
    return f"{part[0]} {part[1]}"


def _work(spec: OperatorSpec) -> str:
    if spec.join:
        return "a join"
    return "a function over groups" if spec.grouped else "an aggregate"


def _column(field: Field) -> Part:
    is_time = ", the event time" if field.name == TIME else ""
    return f"`{field.label or field.name}`", field.type + is_time


def _joins(old: OperatorSpec, new: OperatorSpec) -> list[str]:
    """Changes of a join. Columns that keep their names and types keep their places on the wire too."""
    if old.join is None or new.join is None:
        return []
    how = [f"the join was {old.join.how}, is now {new.join.how}"] if old.join.how != new.join.how else []
    sides = ("left", old.join.left, new.join.left), ("right", old.join.right, new.join.right)
    changes = (
        _changes(f"{side} column", [_column(f) for f in before], [_column(f) for f in after])
        for side, before, after in sides
    )
    return [*how, *chain.from_iterable(changes)]


def _aggregates(spec: OperatorSpec) -> list[Part]:
    inputs = {field.name: field for field in spec.inputs}
    folded = [_aggregate(accumulator, inputs) for accumulator in spec.accumulators]
    return folded + [_holistic(holistic, inputs) for holistic in spec.holistics]


def _holistic(holistic: Holistic, inputs: dict[str, Field]) -> Part:
    fields = [inputs[name] for name in (holistic.input, holistic.by) if name is not None]
    said = [field.label or field.name for field in fields] + [f"{number:g}" for number in holistic.numbers]
    return f"{holistic.kind}({', '.join(said)})", holistic.type


def _aggregate(accumulator: Accumulator, inputs: dict[str, Field]) -> Part:
    if accumulator.input is None:
        argument, read = "*", ""
    else:
        field = inputs[accumulator.input]
        argument, read = field.label or field.name, field.type
    kept = accumulator.type if read in ("", accumulator.type) else f"{accumulator.type} of {read}"
    overflow = f", on overflow {accumulator.overflow}" if accumulator.kind == "sum" else ""
    return f"{accumulator.kind}({argument})", f"{kept}{overflow}"


def _unnamed(window: Window | None) -> Window | None:
    """The window without names on the wire."""
    return window if window is None or window.ends is None else replace(window, ends="")


def _window(window: Window | None) -> str:
    if window is None:
        return "none"
    offset = f" offset by {_seconds(window.offset_us)}" if window.offset_us else ""
    late = f" with a lateness of {_seconds(window.lateness_us)}" if window.lateness_us else ""
    if window.session:
        ends = "" if window.ends is None else " with an expected end"
        return f"sessions with a gap of {_seconds(window.width_us)}{late}{ends}"
    slide = f" every {_seconds(window.slide_us)}" if window.every_us != window.width_us else ""
    return f"{_seconds(window.width_us)}{slide}{offset}{late}"


def _seconds(micros: int) -> str:
    return f"{micros / 1e6:g} s"


def _decode(data: bytes, where: str) -> OperatorSpec:
    body = decode_record(_KIND, FORMAT_VERSION, data, where)
    try:
        return OperatorSpec.from_json(body["spec"])
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt(_KIND, where, f"its fields are not those of an operator ({error})") from error
