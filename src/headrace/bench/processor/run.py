"""`headrace bench processor`: user code in Headrace against PySpark's engines and the built-in sum.

All sides read the same files in the same batches. Spark's sides use its RocksDB store with changelog
checkpointing and Unix sockets to the workers. Throughput is rows over batch time after the warm-up, in
which the JVM compiles its own code. The floor is the processor's own code over the same rows with dicts for
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
from headrace.bench.common.follow import follow
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
WARM_UP = 6  # batches; Spark's own code is compiled by then

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
    """One comparison; `ratio` is its name in the report. Without `other`, Spark runs the same code."""

    name: str
    ratio: str
    build: Build
    other: Build | None = None
    processor: Callable[[], Any] | None = None  # has a floor


CASES = (
    Case("value", "vs_tws_row", _with_state(Count), processor=Count),
    Case("list", "list_vs_tws", _with_state(Append), processor=Append),
    Case("map", "map_vs_tws", _with_state(Update), processor=Update),
    Case("frames", "vs_tws_pandas", _with_state(CountFrames, frames=True)),
    Case("groups", "vs_apply_in_pandas", _groups),
    Case("arrow", "arrow_of_builtin", _in_arrow, other=_built_in),
)


def run(*, quick: bool = False, only: list[str] | None = None, console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    keys, rows, batches = (20_000, 5_000, WARM_UP + 4) if quick else (200_000, 50_000, WARM_UP + 6)
    workload = Workload(keys, None, (Phase("load", 1, rows, load=True), Phase("main", batches, rows)))
    rates: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        write(workload, scratch / "input")
        settings = {"spark.headrace.partitions": str(PARTITIONS), **CHANGELOG.settings}
        with local_session("headrace-bench-processor", scratch, PARTITIONS, settings) as spark:
            for case in CASES:
                if not only or case.name in only:
                    rates[case.name] = _measured(spark, case, scratch, console)
    return _report(rates, quick, console)


def _measured(spark: Any, case: Case, scratch: Path, console: Console) -> dict[str, float]:
    other = "spark" if case.other is None else "builtin"
    rates = {side: _rate(spark, case, side, scratch, console) for side in ("headrace", other)}
    if case.processor is not None:
        rates["floor"] = floor_rows_per_s(case.processor(), scratch / "input")
    return rates


def _rate(spark: Any, case: Case, side: str, scratch: Path, console: Console) -> float:
    import headrace as hr

    source = (
        spark.readStream.schema("key bigint, amount bigint")
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .parquet(str(scratch / "input"))
    )
    grouped = source.groupBy("key") if side == "spark" else hr.stream(source).groupBy("key")
    build = case.other if side == "builtin" and case.other is not None else case.build
    checkpoint = scratch / f"checkpoint-{case.name}-{side}"
    ran = follow(build(grouped), checkpoint, f"{case.name}, {side}", console, mode="update")
    return ran.rows_per_s(skipped=WARM_UP + 1)


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
