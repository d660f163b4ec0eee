"""The records of a journal: small JSON objects, one kind per fact.

    application  id, name
    query        query, run, name, checkpoint
    operator     query, operator, work, keys, window, emit, store, reason, partitions, location
    batch        query, operator, progress: a `BatchProgress`, which replaces an earlier one of the batch
    trigger      query, batch, started_ms, rows, duration_ms: what Spark measured around the batch
    hosts        hosts: machine, pid, memory limit and use, storage waits, partitions
    event        where, level, message, hint
    ended        query, error

Every record has `kind` and `at_ms`, milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from headrace.coordinator.progress import BatchProgress
from headrace.coordinator.requests import OperatorAccount
from headrace.plan.choice import choose_for
from headrace.plan.spec import OperatorSpec, Window

Record = dict[str, Any]
Level = Literal["error", "warning", "note"]

_UNITS_US = (
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1000, "ms"),
)


def application(at_ms: int, identity: str, name: str) -> Record:
    return {"kind": "application", "at_ms": at_ms, "id": identity, "name": name}


def query(at_ms: int, identity: str, run: str, name: str, checkpoint: str) -> Record:
    facts = {"query": identity, "run": run, "name": name, "checkpoint": checkpoint}
    return {"kind": "query", "at_ms": at_ms, **facts}


def operator(at_ms: int, identity: str, account: OperatorAccount) -> Record:
    spec = account.spec
    return {
        "kind": "operator",
        "at_ms": at_ms,
        "query": identity,
        "operator": spec.name,
        "work": spec.work.noun,
        "keys": [key.label or key.name for key in spec.keys],
        "window": window_text(spec.window),
        "emit": spec.emit,
        "store": spec.store,
        "reason": reason_of(spec),
        "partitions": spec.partitions,
        "location": account.location,
    }


def batch(at_ms: int, identity: str, name: str, progress: BatchProgress) -> Record:
    values = {"query": identity, "operator": name, "progress": progress.to_dict()}
    return {"kind": "batch", "at_ms": at_ms, **values}


def trigger(at_ms: int, identity: str, spark: Mapping[str, Any]) -> Record:
    """From the JSON of Spark's `StreamingQueryProgress`."""
    return {
        "kind": "trigger",
        "at_ms": at_ms,
        "query": identity,
        "batch": int(spark["batchId"]),
        "started_ms": round(datetime.fromisoformat(spark["timestamp"]).timestamp() * 1000),
        "rows": int(spark.get("numInputRows", 0)),
        "duration_ms": {name: int(ms) for name, ms in spark.get("durationMs", {}).items()},
    }


def event(at_ms: int, where: str, level: Level, message: str, hint: str = "") -> Record:
    facts = {"where": where, "level": level, "message": message, "hint": hint}
    return {"kind": "event", "at_ms": at_ms, **facts}


def ended(at_ms: int, identity: str, error: str) -> Record:
    """The end of a query; `error` is empty when it was stopped."""
    return {"kind": "ended", "at_ms": at_ms, "query": identity, "error": error}


def reason_of(spec: OperatorSpec) -> str:
    """Why the operator has its store."""
    choice = choose_for(spec)
    return choice.reason if choice.store == spec.store else "the query or spark.headrace.store names it"


def window_text(window: Window | None) -> str:
    """A window in a few words."""
    if window is None:
        return "none"
    if window.marker is not None:
        gap = f" or a gap of {_duration(window.width_us)}" if window.width_us else ""
        return f"rows up to a marker{gap}"
    if window.count:
        return f"{window.count} rows" + (f" every {window.step}" if window.step != window.count else "")
    if window.session:
        gap = _duration(window.width_us) if window.until is None else "each row's own"
        text = f"sessions with a gap of {gap}"
    elif window.every_us == window.width_us:
        text = f"tumbling, {_duration(window.width_us)}"
    else:
        text = f"sliding, {_duration(window.width_us)} every {_duration(window.every_us)}"
    return text + (f", lateness {_duration(window.lateness_us)}" if window.lateness_us else "")


def _duration(us: int) -> str:
    for unit, name in _UNITS_US:
        if us % unit == 0:
            return f"{us // unit} {name}"
    return f"{us} us"
