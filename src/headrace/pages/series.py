"""The numbers behind the plots: columns of batches for sources that stream. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.coordinator.progress import BatchProgress
from headrace.monitor.picture.phases import PHASES, added, hidden_ms, lane, waited_ms
from headrace.monitor.picture.picture import Query
from headrace.monitor.picture.signs import batch_ms
from headrace.pages.text import lag_s

Columns = dict[str, list[float | None]]

KEPT = 600  # batches in a plot
TIMELINE = 20
TYPICAL = 0.97  # part of the batches that fit into the plot
LABEL_PART = 0.025  # of the timeline, what a batch number takes
UP = (*(phase for phase in PHASES if phase != "compaction"), "spark")
DOWN = ("seal", "upload", "compaction")
LANES = ("compaction", "upload", "seal", "wait", "log", "emit", "apply", "read", "open", "batch")
AHEAD = ("fetch", "prefetch")  # lanes of queries that read ahead, or from elsewhere


def names(operators: Sequence[str]) -> list[str]:
    """The columns of a query's source."""
    per_operator = [
        f"{kind}_{at}" for kind in ("rows", "keys", "memory", "late") for at in range(len(operators))
    ]
    return [
        "batch",
        "at",
        "width",
        "lag",
        *(f"up_{p}" for p in UP),
        *(f"down_{p}" for p in DOWN),
        *per_operator,
    ]


def lanes_of(query: Query | None) -> tuple[str, ...]:
    """The lanes of a query's timeline, the lowest first."""
    operators = () if query is None else query.operators.values()
    recent = (batch for op in operators for batch in op.recent(TIMELINE))
    phases = {span.phase for batch in recent for span in batch.spans}
    return (*LANES[:-2], *(lane for lane in AHEAD if lane in phases), *LANES[-2:])


def complete(query: Query) -> list[int]:
    """The batches whose numbers will not change any more: with commits behind, all but the newest."""
    numbers = sorted({number for op in query.operators.values() for number in op.batches})
    modes = {op.last.commit for op in query.operators.values() if op.last}
    return numbers if modes <= {"sync"} or query.ended_ms is not None else numbers[:-1]


def columns(query: Query, operators: Sequence[str], numbers: Sequence[int]) -> Columns:
    """One value per batch and column."""
    made: Columns = {name: [] for name in names(operators)}
    for number in numbers:
        mine = [query.operators[name].batches.get(number) for name in operators if name in query.operators]
        batches = [batch for batch in mine if batch is not None]
        if batches:
            for name, value in _row(query, number, batches, mine).items():
                made[name].append(value)
    return made


def _row(
    query: Query, number: int, batches: list[BatchProgress], by_operator: Sequence[BatchProgress | None]
) -> dict[str, float | None]:
    ended = max(batch.ended_ms for batch in batches)
    took = batch_ms(query, number, {})
    up, down = added(waited_ms(one) for one in batches), added(hidden_ms(one) for one in batches)
    lags = [lag for lag in map(lag_s, batches) if lag is not None]
    row: dict[str, float | None] = {
        "batch": number,
        "at": ended - took / 2,
        "width": took * 0.9,
        "lag": max(lags, default=None),
    }
    up["spark"] = max(0.0, took - sum(up.values()))
    row |= {f"up_{phase}": up.get(phase, 0.0) / 1000 for phase in UP}
    row |= {f"down_{phase}": -down.get(phase, 0.0) / 1000 for phase in DOWN}
    for at, batch in enumerate(by_operator):
        row[f"rows_{at}"] = 0.0 if batch is None else batch.rows_in / took * 1000
        row[f"keys_{at}"] = None if batch is None else batch.keys
        row[f"memory_{at}"] = 0.0 if batch is None else batch.memory_bytes / (1 << 20)
        row[f"late_{at}"] = 0.0 if batch is None else batch.late_rows
    return row


def heights(data: Mapping[str, Sequence[float]], shown: int) -> tuple[float, float]:
    """The range of the stack: most batches in full; a rare one that took far longer is cut off."""

    def height(names: Iterable[str]) -> float:
        sums = sorted(
            abs(sum(values)) for values in zip(*(list(data[n])[-shown:] for n in names), strict=True)
        )
        return sums[int((len(sums) - 1) * TYPICAL)] if sums else 0.0

    up, down = height(f"up_{phase}" for phase in UP), height(f"down_{phase}" for phase in DOWN)
    return -max(1.25 * down, 0.05 * up), max(1.25 * up, 0.001)


def peak(data: Mapping[str, Sequence[float]], prefix: str) -> float:
    """The largest sum of the columns whose names begin so."""
    rows = zip(*(list(values) for name, values in data.items() if name.startswith(prefix)), strict=True)
    return max((sum(row) for row in rows), default=0.0)


@dataclass(frozen=True)
class Timeline:
    """The spans of the last batches, and where batches begin and end."""

    spans: dict[str, list[object]]
    batches: dict[str, list[object]]
    start_ms: float
    end_ms: float


def timeline(query: Query, colours: dict[str, str]) -> Timeline:
    """The last batches on the clock."""
    shown: dict[int, list[tuple[str, BatchProgress]]] = {}
    for operator in query.operators.values():
        for batch in operator.recent(TIMELINE):
            shown.setdefault(batch.batch, []).append((operator.name, batch))
    numbers = sorted(shown)[-TIMELINE:]
    spans: dict[str, list[object]] = {
        key: [] for key in ("y", "l", "r", "c", "phase", "batch", "ms", "operator")
    }
    bands: dict[str, list[object]] = {key: [] for key in ("x", "l", "r", "c", "text")}
    ends = [0.0]
    for number in numbers:
        for name, batch in shown[number]:
            for one in batch.spans:
                ends.append(one.end_ms)
                values = (
                    lane(one.phase),
                    one.start_ms,
                    max(one.end_ms, one.start_ms + 1),
                    colours[lane(one.phase)],
                )
                for key, value in zip(
                    spans, (*values, one.phase, number, one.end_ms - one.start_ms, name), strict=True
                ):
                    spans[key].append(value)
        start, end = _bounds(query, number, [batch for _, batch in shown[number]])
        ends.append(end)
        shade = "#f6f7f9" if number % 2 else "#ffffff"
        for key, value in zip(bands, (start, start, end, shade, str(number)), strict=True):
            bands[key].append(value)
    starts = [start for start in bands["l"] if isinstance(start, (int, float))]
    first, last = min(starts, default=0.0), max(ends)
    bands["text"] = apart(starts, [str(number) for number in numbers], (last - first) * LABEL_PART)
    return Timeline(spans, bands, first, last)


def apart(places: Sequence[float], labels: Sequence[str], distance: float) -> list[object]:
    """The labels, without those that would cover the one before."""
    kept: list[object] = []
    covered = float("-inf")
    for place, label in zip(places, labels, strict=True):
        kept.append(label if place >= covered else "")
        covered = place + distance if place >= covered else covered
    return kept


def _bounds(query: Query, number: int, batches: list[BatchProgress]) -> tuple[float, float]:
    """Begin and end of a batch: Spark's, or those of its operators."""
    trigger = query.triggers.get(number)
    if trigger is not None:
        return trigger.started_ms, trigger.started_ms + trigger.total_ms
    return min(one.started_ms for one in batches), max(one.ended_ms for one in batches)
