"""`headrace bench nexmark`: every query of NEXMark, its floor, and Spark where Spark has the query.

All sides read the same files in the same batches, with two partitions. They commit durably in every batch,
and write to the `noop` sink. Each side has its own Spark application and runs query after query, each first
over a few batches to warm up. A figure is events per second of batch time, after the first batches: of all
three kinds, or of persons and auctions for queries without bids.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from rich.console import Console

from headrace.bench.common import report
from headrace.bench.common.follow import Ran, follow
from headrace.bench.common.session import sole_session
from headrace.bench.common.sides import ROCKSDB
from headrace.bench.common.turns import Turn
from headrace.bench.nexmark import floor as floors
from headrace.bench.nexmark.input import ALL, FULL, QUICK, SELLERS, Scale, read, write
from headrace.bench.nexmark.spark import SPARK, dedup_headrace
from headrace.errors import QueryError
from headrace.nexmark.registry import QUERIES

PARTITIONS = 2
NAMES = (*QUERIES, "dedup")
SIDES = {"headrace": "Headrace", "spark": "Spark, RocksDB", "floor": "no state (floor)"}
Outcomes = dict[tuple[str, str], float]  # by side and query: events per second


def run(*, quick: bool = False, only: Sequence[str] = (), console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    unknown = sorted(set(only) - set(NAMES))
    if unknown:
        raise QueryError(f"no query is called {', '.join(unknown)}", hint=f"choose from {', '.join(NAMES)}")
    names = [name for name in NAMES if not only or name in only]
    return measure_all(QUICK if quick else FULL, names, console or Console(stderr=True))


def measure_all(scale: Scale, names: Sequence[str], console: Console) -> str:
    outcomes: Outcomes = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        console.print(f"writing {scale.batches} batches of {scale.events:,} events …")
        write(scale, scratch / "input", {stream_of(floors.floor_of(name)) for name in names})
        for side in SIDES:
            for name, outcome in _turn(side, names, scale, scratch):
                if isinstance(outcome, str):
                    console.print(f"{SIDES[side]}, {name}: {outcome}")
                else:
                    outcomes[side, name] = outcome
    return summarize(scale, names, outcomes, console)


def stream_of(floor: str) -> str:
    """The input of queries that read these streams."""
    return ALL if floors.has_bids(floor) else SELLERS


def measured(side: str, names: Sequence[str]) -> list[str]:
    """What a side measures: queries, or the floors of queries."""
    if side == "spark":
        return [name for name in names if name in SPARK]
    if side == "floor":
        return list(dict.fromkeys(floors.floor_of(name) for name in names))
    return list(names)


def _turn(side: str, names: Sequence[str], scale: Scale, scratch: Path) -> list[tuple[str, float | str]]:
    """All measurements of one side, in its own Spark."""
    chosen = measured(side, names)
    settings = {
        "spark.headrace.partitions": str(PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        **(ROCKSDB.settings if side == "spark" else {}),
    }
    if not chosen:
        return []
    title = f"headrace-bench-nexmark-{side}"
    with Turn(partial(sole_session, title, scratch / side, PARTITIONS, settings)) as turn:
        return [(name, turn.call(_measure, side, name, scale, scratch)) for name in chosen]


def _measure(spark: Any, side: str, name: str, scale: Scale, scratch: Path) -> float | str:
    """Events per second, or the error."""
    try:
        with suppress(QueryError, StreamingQueryException):  # the measurement reports the error
            _run(spark, side, name, scale.warm_batches, scratch, "warm")
        batches = scale.spark_batches if side == "spark" else scale.batches
        ran = _run(spark, side, name, batches, scratch, "measured")
    except (QueryError, StreamingQueryException) as error:
        return str(error).split("=== Streaming Query ===")[0].strip()
    return rows_per_s(ran, scale, batches, stream_of(_floor(side, name)))


def _floor(side: str, name: str) -> str:
    return name if side == "floor" else floors.floor_of(name)


def rows_per_s(ran: Ran, scale: Scale, batches: int, stream: str) -> float:
    """A stream that a query reads twice counts once; batches without input count as time."""
    took_ms = sum(ms for batch, ms in ran.took_ms.items() if batch >= scale.skipped)
    return (batches - scale.skipped) * scale.rows(stream) / max(took_ms, 1.0) * 1000


def _run(spark: Any, side: str, name: str, batches: int, scratch: Path, kind: str) -> Ran:
    streams = read(spark, scratch / "input" / stream_of(_floor(side, name)), batches)
    folder = scratch / side / f"{kind}-{name}"
    df = _query(side, name, replace(streams, side_path=str(folder / "side")))
    return follow(df, folder / "checkpoint", f"{SIDES[side]}, {name}, {kind}", Console(stderr=True))


def _query(side: str, name: str, streams: Any) -> Any:
    if side == "floor":
        return floors.rows(name, streams, PARTITIONS)
    if side == "spark":
        return SPARK[name](streams)
    return dedup_headrace(streams) if name == "dedup" else QUERIES[name].over(streams)


def summarize(scale: Scale, names: Sequence[str], outcomes: Outcomes, console: Console) -> str:
    ratios, rows = {}, []
    for name in names:
        ours, theirs = outcomes.get(("headrace", name)), outcomes.get(("spark", name))
        floor = outcomes.get(("floor", floors.floor_of(name)))
        rows.append([name, *(f"{one:,.0f}" if one else "" for one in (ours, theirs, floor))])
        if ours and theirs:
            ratios[f"{name}_vs_spark"] = ours / theirs
        if floor and theirs:
            ratios[f"floor_{name}_vs_spark"] = floor / theirs
    report.show(console, "NEXMark, events per second", ("", *SIDES.values()), rows)
    expected = [(side, name) for side in SIDES for name in measured(side, names)]
    return report.last_line(
        "nexmark",
        ratios,
        events_per_s={f"{side}.{name}": round(rate) for (side, name), rate in outcomes.items()},
        failed=[f"{side}.{name}" for side, name in expected if (side, name) not in outcomes],
        events=scale.batches * scale.events,
        rate=scale.rate,
        span_s=round(scale.span_s),
    )
