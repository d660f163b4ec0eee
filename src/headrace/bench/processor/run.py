"""`headrace bench processor`: user code in Headrace against PySpark's engines and the built-in sum.

All sides read the same files in the same batches. Spark's sides use its RocksDB store with changelog
checkpointing and Unix sockets to the workers. Each side first runs a query over small batches for some
seconds, in which the JVM compiles its code. Then it runs the measured query: throughput is rows over batch
time without the first batches. The floor is the processor's own code over the same rows with dicts for
state, on one core: no engine can be faster than that times the number of cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.bench.common import report
from headrace.bench.common.follow import Ran, follow
from headrace.bench.common.session import local_session
from headrace.bench.common.sides import CHANGELOG
from headrace.bench.common.workload import FILES_PER_BATCH, Phase, Workload, write
from headrace.bench.processor.classes import (
    COUNTED,
    Append,
    Count,
    CountFrames,
    Update,
    add_in_arrow,
    count_group,
)
from headrace.bench.processor.floor import floor_rows_per_s

PARTITIONS = 2
WARM_UP = 200  # batches of the warm-up, of which a side runs as many as it can
SKIPPED = 2  # first batches of the measured query: most of their keys are new

Build = Callable[[Any], Any]  # of grouped rows


def _with_state(processor: Callable[[], Any], *, frames: bool = False) -> Build:
    def build(grouped: Any) -> Any:
        method = grouped.transformWithStateInPandas if frames else grouped.transformWithState
        return method(processor(), COUNTED, "Update", "None")

    return build


def _groups(grouped: Any) -> Any:
    return grouped.applyInPandasWithState(count_group, COUNTED, "n bigint", "Update", "NoTimeout")


def _in_arrow(grouped: Any) -> Any:
    return grouped.updateInArrow(add_in_arrow, "n bigint", COUNTED)


def _built_in(grouped: Any) -> Any:
    import headrace as hr

    return grouped.agg(n=hr.sum("amount"))


@dataclass(frozen=True)
class Case:
    """One comparison; `ratio` is its name in the report. Without `other`, Spark runs the same code.

    Where Spark needs half a minute for a batch, `batches` are fewer.
    """

    name: str
    ratio: str
    build: Build
    other: Build | None = None
    processor: Callable[[], Any] | None = None  # has a floor
    batches: int = 4
    keys: int = 200_000


CASES = (
    Case("value", "vs_tws_row", _with_state(Count), processor=Count),
    Case("list", "list_vs_tws", _with_state(Append), processor=Append, keys=100_000),
    Case("map", "map_vs_tws", _with_state(Update), processor=Update, keys=100_000),
    Case("frames", "vs_tws_pandas", _with_state(CountFrames, frames=True), batches=2),
    Case("groups", "vs_apply_in_pandas", _groups, batches=2),
    Case("arrow", "arrow_of_builtin", _in_arrow, other=_built_in),
)


@dataclass(frozen=True)
class _Size:
    """Rows per batch of the warm-up and of the measured query, and seconds of warm-up."""

    small_rows: int
    rows: int
    warm_up_s: float
    scale: float  # of keys


FULL, QUICK = _Size(5_000, 50_000, 10.0, 1.0), _Size(2_500, 5_000, 3.0, 0.1)


def run(*, quick: bool = False, only: list[str] | None = None, console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    rates: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        settings = {"spark.headrace.partitions": str(PARTITIONS), **CHANGELOG.settings}
        with local_session("headrace-bench-processor", scratch, PARTITIONS, settings) as spark:
            bench = _Bench(spark, scratch, QUICK if quick else FULL, console)
            for case in CASES:
                if not only or case.name in only:
                    rates[case.name] = bench.measured(case)
    return _report(rates, quick, console)


@dataclass(frozen=True, eq=False)
class _Bench:
    """A session, and what all measurements share."""

    spark: Any
    scratch: Path
    size: _Size
    console: Console

    def measured(self, case: Case) -> dict[str, float]:
        """Rows per second of a case's sides."""
        keys, size = int(case.keys * self.size.scale), self.size
        warm_up, measured = self.scratch / f"warm-up-{case.name}", self.scratch / f"input-{case.name}"
        write(Workload(keys, None, (Phase("main", WARM_UP, size.small_rows),)), warm_up)
        main = Phase("main", SKIPPED - 1 + case.batches, size.rows)
        write(Workload(keys, None, (Phase("load", 1, size.rows, load=True), main)), measured)
        rates: dict[str, float] = {}
        for side in ("headrace", "spark" if case.other is None else "builtin"):
            self._ran(case, side, warm_up, size.warm_up_s)
            rates[side] = self._ran(case, side, measured).rows_per_s(skipped=SKIPPED)
        if case.processor is not None:
            rates["floor"] = floor_rows_per_s(case.processor(), measured)
        return rates

    def _ran(self, case: Case, side: str, folder: Path, stop_after_s: float | None = None) -> Ran:
        import headrace as hr

        source = (
            self.spark.readStream.schema("key bigint, amount bigint")
            .option("maxFilesPerTrigger", FILES_PER_BATCH)
            .parquet(str(folder))
        )
        grouped = source.groupBy("key") if side == "spark" else hr.stream(source).groupBy("key")
        build = case.other if side == "builtin" and case.other is not None else case.build
        checkpoint = self.scratch / f"checkpoint-{folder.name}-{side}"
        title = f"{side}, {folder.name}"
        return follow(build(grouped), checkpoint, title, self.console, "update", stop_after_s)


def _report(rates: dict[str, dict[str, float]], quick: bool, console: Console) -> str:
    rows = [_line(name, rates[name]) for name in rates]
    titles = ("case", "Headrace rows/s", "other rows/s", "ratio", "floor rows/s and core")
    report.show(console, "processors", titles, rows)
    named = {case.name: case.ratio for case in CASES}
    ratios = {named[name]: both["headrace"] / _other(both) for name, both in rates.items()}
    per_s = {name: {side: round(rate) for side, rate in both.items()} for name, both in rates.items()}
    return report.last_line("processor", ratios, quick=quick, rows_per_s=per_s)


def _other(rates: dict[str, float]) -> float:
    return rates["builtin"] if "builtin" in rates else rates["spark"]


def _line(name: str, rates: dict[str, float]) -> tuple[str, ...]:
    ours, theirs = rates["headrace"], _other(rates)
    floor = f"{rates['floor']:,.0f}" if "floor" in rates else ""
    return name, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.1f}", floor
