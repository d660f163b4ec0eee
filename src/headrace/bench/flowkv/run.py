"""`headrace bench flowkv`: FlowKV's queries with the store that fits, with RocksDB, and in Spark alone.

Every side reads the same files in the same batches with the same number of partitions. It commits durably
in every batch, and writes to Spark's `noop` sink. State is larger than the host's memory limit. Sides take
turns, query by query. Each turn has its own Spark application, whose JVM has compiled no other query, and
runs the query over a short stream first. Throughput is input rows over batch time, after the first batches.
One more side, the floor, has the rows and no state. Reading ahead is measured with all state in the page
cache, and with none of it.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from rich.console import Console

from headrace.bench.common import report
from headrace.bench.common.cold import cold_files
from headrace.bench.common.follow import Ran, follow
from headrace.bench.common.hostwatch import host_peak_bytes, reset_peaks
from headrace.bench.common.session import sole_session
from headrace.bench.common.sides import FLOOR
from headrace.bench.common.sides import ROCKSDB as SPARK_ROCKSDB
from headrace.bench.common.turns import Turn
from headrace.bench.flowkv import floor as flowkv_floor
from headrace.bench.flowkv import spark as flowkv_spark
from headrace.bench.flowkv.input import FULL, QUICK, WARM, Scale, read, warm_folder, write
from headrace.bench.queries import nexmark as queries
from headrace.errors import QueryError

PARTITIONS = 2
SLICED, PER_WINDOW = "sliced", "once_per_window"  # q5 with slices, and with a copy of each row per window
TOGETHER, ALONE = "together", "alone"  # q11_median: closing sessions read together, or each by itself
COLD, COLD_TOGETHER, COLD_ALONE = "cold", "cold_together", "cold_alone"  # state outside the page cache
SWEEP = {f"cold_ratio_{ratio}": ratio for ratio in ("0.005", "0.05", "0.2")}
AHEAD = {TOGETHER: "0", ALONE: "alone", COLD: "auto", COLD_TOGETHER: "0", COLD_ALONE: "alone", **SWEEP}
# Reading ahead over no reading ahead; `batching` is what reading sessions together brings by itself.
PREDICTIVE = (
    ("predictive", COLD, COLD_ALONE),
    ("predictive_ahead", COLD, COLD_TOGETHER),
    ("predictive_batching", COLD_TOGETHER, COLD_ALONE),
    ("predictive_cached", "q11_median", TOGETHER),
    *((f"predictive_{name.removeprefix('cold_')}", name, COLD_TOGETHER) for name in SWEEP),
)
EXTRAS = {"q5": (SLICED, PER_WINDOW), "q11_median": tuple(AHEAD)}
# Spark needs up to three quarters of a minute for a batch; with fewer batches its state is smaller.
SPARK_SKIPPED = 2
SPARK_FILES, SPARK_FILES_DENSE, SPARK_FILES_WARM = "0000[0-5]-*", "0000[0-3]-*", "000[0-5]?-*"
READ_RATIO = "spark.headrace.read.ratio"
STORES = {"headrace": "auto", "rocksdb": "rocksdb"}
SETTINGS = {
    **{side: {"spark.headrace.store": store} for side, store in STORES.items()},
    "spark": SPARK_ROCKSDB.settings,
    "floor": {},
}
TITLES = {
    "headrace": "Headrace",
    "rocksdb": "Headrace, RocksDB store",
    "spark": "Spark, RocksDB",
    "floor": FLOOR.title,
}


@dataclass(frozen=True)
class Outcome:
    """The result of one query on one side."""

    rows_per_s: float
    host_peak_bytes: int = 0
    state_bytes: int = 0  # the largest of any batch, summed over operators
    bytes_per_row: float = 0.0  # written by the first operator per input row
    hit_ratio: float | None = None  # share of the closed sessions whose rows had been read ahead
    in_vain: float | None = None  # share of the sessions read ahead that were not used


Outcomes = dict[tuple[str, str], Outcome]  # by side and query


def run(*, quick: bool = False, only: Sequence[str] = (), console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    names = [name for name in queries.NAMES if not only or name in only]
    unknown = sorted(set(only) - set(queries.NAMES))
    if unknown:
        raise QueryError(
            f"no query is called {', '.join(unknown)}", hint=f"choose from {', '.join(queries.NAMES)}"
        )
    return measure_all(QUICK if quick else FULL, names, console)


def measure_all(scale: Scale, names: Sequence[str], console: Console) -> str:
    outcomes: Outcomes = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        console.print(f"writing {scale.sparse.batches} batches of {scale.sparse.events:,} events …")
        write(scale, scratch / "input", all_views(names))
        for name, side in itertools.product(names, TITLES):
            for query, outcome in _turn(side, name, scale, scratch):
                if isinstance(outcome, Outcome):
                    outcomes[side, query] = outcome
                else:  # the other queries still run
                    console.print(f"{TITLES[side]}, {query}: {outcome}")
    return summarize(scale, names, outcomes, console)


def all_views(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(view for name in names for view in views_of(name)))


def views_of(name: str) -> tuple[str, ...]:
    """The streams of a query, including those of its extras."""
    return tuple(view for one in (name, *EXTRAS.get(name, ())) for view in _inputs(one))


def _inputs(name: str) -> tuple[str, ...]:
    """The streams of a query."""
    if name == "q8":
        return ("person", "auction")
    if name in ("q5", "q5_append"):
        return ("dense",)
    if name == "q7":
        return ("busy",)
    if name.startswith(COLD):
        return ("long",)
    return ("fine",) if name in (SLICED, PER_WINDOW) else ("bid",)


def _turn(side: str, name: str, scale: Scale, scratch: Path) -> Iterator[tuple[str, Outcome | str]]:
    """Runs a query and its extras for one side, in its own Spark."""
    settings = {
        "spark.headrace.memory": str(scale.memory_bytes),
        "spark.headrace.partitions": str(PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        **SETTINGS[side],
    }
    title = f"headrace-bench-flowkv-{side}-{name}"
    measurements = queries_of(side, [name])
    if measurements:
        with Turn(partial(sole_session, title, scratch / side, PARTITIONS, settings)) as turn:
            turn.call(_warm_up, side, name, scratch)
            yield from ((one, turn.call(_measured, side, one, scale, scratch)) for one in measurements)


def _warm_up(spark: Any, side: str, name: str, scratch: Path) -> None:
    with suppress(QueryError, StreamingQueryException):  # the measurement reports the error
        _run(spark, side, name, warm_folder(scratch / "input"), scratch / side)


def _measured(spark: Any, side: str, name: str, scale: Scale, scratch: Path) -> Outcome | str:
    """The query's outcome, or its error."""
    try:
        return _measure(spark, side, name, scale, scratch)
    except (QueryError, StreamingQueryException) as error:
        return _short(error)


def _short(error: Exception) -> str:
    """The error without Spark's description of the query."""
    return str(error).split("=== Streaming Query ===")[0].strip()


def queries_of(side: str, names: Sequence[str]) -> list[str]:
    """One measurement of one side."""
    if side == "spark":
        return [name for name in names if name in flowkv_spark.NAMES]
    extras = EXTRAS if side == "headrace" else {}
    return [*names, *(extra for name, those in extras.items() if name in names for extra in those)]


def _measure(spark: Any, side: str, name: str, scale: Scale, scratch: Path) -> Outcome:
    reset_peaks(spark)
    with cold_files(scratch / side) if name.startswith(COLD) else nullcontext():
        ran = _run(spark, side, name, scratch / "input", scratch / side)
    skipped = scale.of(_inputs(name)[0]).skipped
    rate = ran.rows_per_s(min(skipped, SPARK_SKIPPED) if side == "spark" else skipped)
    return _with_host(spark, ran, rate) if side in STORES else Outcome(rate)


def _run(spark: Any, side: str, name: str, files: Path, scratch: Path) -> Ran:
    df = _query(spark, side, name, files)
    mode = "update" if side == "spark" and name in flowkv_spark.UPDATING else "append"
    title = f"{TITLES[side]}, {name}" + (", warm-up" if files.name == WARM else "")
    checkpoint = scratch / f"checkpoint-{name}-{files.name}"
    return follow(df, checkpoint, title, Console(stderr=True), mode)


def _query(spark: Any, side: str, name: str, files: Path) -> Any:
    streams = [read(spark, files, view, _files(side, view, files.name)) for view in _inputs(name)]
    if side == "floor":
        return flowkv_floor.query(name, PARTITIONS, *streams)
    if name == "q8":
        return (flowkv_spark if side == "spark" else queries).q8(*streams)
    (bids,) = streams
    if name in (SLICED, PER_WINDOW):
        return queries.q5(bids) if name == SLICED else queries.counts_per_window(bids)
    if name in AHEAD:
        spark.conf.set(READ_RATIO, AHEAD[name])
        sessions = queries.q11_median(bids)
        spark.conf.unset(READ_RATIO)
        return sessions
    return (flowkv_spark.OVER_BIDS if side == "spark" else queries.OVER_BIDS)[name](bids)


def _files(side: str, view: str, folder: str) -> str:
    """The names of the files that a side reads of a stream."""
    if side != "spark":
        return "*"
    if folder == WARM:
        return SPARK_FILES_WARM
    return SPARK_FILES_DENSE if view == "dense" else SPARK_FILES


def _with_host(spark: Any, ran: Ran, rate: float) -> Outcome:
    import headrace as hr

    batches = hr.progress(ran.query)
    by_batch: dict[int, int] = {}
    for of_operator in batches.values():
        for batch in of_operator:
            by_batch[batch.batch] = by_batch.get(batch.batch, 0) + batch.state_bytes
    first = batches[_nearest_source(batches)]
    written = sum(batch.written_bytes for batch in first) / max(1, sum(ran.rows.values()))
    ended = sum(batch.prefetch_hits + batch.prefetch_misses for batch in first)
    hits = sum(batch.prefetch_hits for batch in first) / ended if ended else None
    prefetched = sum(batch.prefetched for batch in first)
    in_vain = sum(batch.prefetch_in_vain for batch in first) / prefetched if prefetched else None
    return Outcome(rate, host_peak_bytes(spark), max(by_batch.values(), default=0), written, hits, in_vain)


def _nearest_source(batches: dict[str, Any]) -> str:
    """The operator that reads the input: it has the most input rows."""
    return max(batches, key=lambda name: sum(batch.rows_in for batch in batches[name]))


def summarize(scale: Scale, names: Sequence[str], outcomes: Outcomes, console: Console) -> str:
    ratios, rows = {}, []
    for name in names:
        by_side = {side: outcomes.get((side, name)) for side in TITLES}
        ours = by_side["headrace"]
        rows.append(
            [name, *(f"{one.rows_per_s:,.0f}" if one else "" for one in by_side.values()), _mb(ours)]
        )
        for side, suffix in (("rocksdb", ""), ("spark", "_vs_spark")):
            other, floor = by_side[side], by_side["floor"]
            if ours and other:
                ratios[name + suffix] = ours.rows_per_s / other.rows_per_s
            if floor and other:
                ratios[f"floor_{name}{suffix}"] = floor.rows_per_s / other.rows_per_s
    report.show(
        console, "FlowKV's queries, input rows per second", ("", *TITLES.values(), "state MB"), rows
    )
    once, per_window = (outcomes.get(("headrace", name)) for name in (SLICED, PER_WINDOW))
    if once and per_window:
        ratios["slices"] = once.bytes_per_row / per_window.bytes_per_row
        stored = [f"{one.bytes_per_row:.1f} bytes per bid" for one in (once, per_window)]
        console.print(f"q5 stores {stored[0]}; once per window it would be {stored[1]}")
    cold = outcomes.get(("headrace", COLD))
    for ratio, on, off in PREDICTIVE:
        ahead, not_ahead = outcomes.get(("headrace", on)), outcomes.get(("headrace", off))
        if ahead and not_ahead:
            ratios[ratio] = ahead.rows_per_s / not_ahead.rows_per_s
    if scale.is_short:
        console.print("a short run checks that all sides run; it prints no ratio of speeds")
        ratios = {name: value for name, value in ratios.items() if name == "slices"}
    expected = [(side, name) for side in TITLES for name in queries_of(side, names)]
    hosted = {f"{side}.{name}": one for (side, name), one in outcomes.items() if side in STORES}
    return report.last_line(
        "flowkv",
        ratios,
        rows_per_s={f"{side}.{name}": round(one.rows_per_s) for (side, name), one in outcomes.items()},
        failed=[f"{side}.{name}" for side, name in expected if (side, name) not in outcomes],
        memory_mb=report.mb(scale.memory_bytes),
        host_peak_mb={name: report.mb(one.host_peak_bytes) for name, one in hosted.items()},
        hit_ratio=cold.hit_ratio if cold else None,
        in_vain=cold.in_vain if cold else None,
        state_mb={name: round(one.state_bytes / 1e6, 1) for name, one in hosted.items()},
    )


def _mb(outcome: Outcome | None) -> str:
    return "" if outcome is None else f"{outcome.state_bytes / 1e6:,.0f}"
