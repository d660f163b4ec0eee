"""What an operator was when its state began, so that a restart with another one is refused by name.

The record `<query>/<operator>/operator.json` is written once and never changed. `differences` decides, and
reads no storage. What may change: the watermark's delay, the emit mode, names on the wire, and the number
of partitions, which belongs to a version (`plan/partitions/layouts.py`).
"""

from __future__ import annotations

from dataclasses import replace

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.clock import Clock, SystemClock
from headrace.errors import BlobMissing, OperatorChanged, StateMissing
from headrace.format.names import operator_record
from headrace.format.record import corrupt, decode_record, encode_record
from headrace.plan.choice import adds, layout_of
from headrace.plan.spec import OperatorSpec, Window
from headrace.plan.work.description import changes, column_parts
from headrace.plan.work.description import differences as parts_changed

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
        stored = put_or_read(blobs, name, data, clock=clock or SystemClock(), retry=retry or Retry())
        recorded = _decode(stored, f"{blobs.root}/{name}")
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
    changed = differences(old, new)
    if changed:
        raise OperatorChanged(
            f"operator {new.name!r} is not the one that wrote its state: " + "; ".join(changed),
            hint="the state was not touched: put the operator back as it was, or start the changed query "
            "with a new checkpoint location",
        )


def differences(old: OperatorSpec, new: OperatorSpec) -> list[str]:
    """What keeps `new` from using the state of `old`, for people; empty when nothing does."""
    if old.work.noun != new.work.noun:
        return [f"it was {old.work.noun}, is now {new.work.noun}"]
    changed = changes(column_parts("key", old.keys), column_parts("key", new.keys))
    changed += parts_changed(old.work.describe(old.inputs), new.work.describe(new.inputs))
    if _unnamed(old.window) != _unnamed(new.window):
        changed.append(f"the window was {_window(old.window)}, is now {_window(new.window)}")
    if len(old.delays_ms) != len(new.delays_ms):
        changed.append(f"watermarks below it were {len(old.delays_ms)}, are now {len(new.delays_ms)}")
    if old.emit != new.emit and adds(old) != adds(new):
        changed.append(
            f"emit was {old.emit!r}, is now {new.emit!r}: state of final windows has another form"
        )
    if _files(old) != _files(new):
        changed.append(
            f"the store was {old.store}, is now {new.store} "
            f"(write .store({old.store!r}) on the operator, or set spark.headrace.store back)"
        )
    return changed


def _files(spec: OperatorSpec) -> str:
    """Whose files the state is in: the memory store writes those of the layout that it holds.

    With auto they may be of any layout by now, and only the manifest of each version names it.
    """
    return layout_of(spec) if spec.store == "memory" else spec.store


def _unnamed(window: Window | None) -> Window | None:
    """The window without names on the wire."""
    if window is None:
        return None
    names = (window.ends, window.until, window.marker)
    ends, until, marker = (None if name is None else "" for name in names)
    return replace(window, ends=ends, until=until, marker=marker)


def _window(window: Window | None) -> str:
    if window is None:
        return "none"
    if window.marker is not None:
        return "rows up to a marker" + (
            f" or a gap of {_seconds(window.width_us)}" if window.width_us else ""
        )
    if window.count:
        return f"{window.count} rows every {window.step} rows"
    offset = f" offset by {_seconds(window.offset_us)}" if window.offset_us else ""
    late = f" with a lateness of {_seconds(window.lateness_us)}" if window.lateness_us else ""
    if window.session:
        ends = "" if window.ends is None else " with an expected end"
        gap = _seconds(window.width_us) if window.until is None else "each row's own"
        return f"sessions with a gap of {gap}{late}{ends}"
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
