"""`headrace bench processor`: user code in Headrace against PySpark's engines and the built-in sum.

All sides read the same files in the same batches. Spark's sides use its RocksDB store with changelog
checkpointing and Unix sockets to the workers. Each side first runs queries over small batches for some
seconds, in which the JVM compiles its code. Then it runs the measured query: throughput is rows over batch
time without the first batches. CPU time is that of all processes. It changes less than throughput where a
machine does other work.

There are two floors. One is the processor's own code over the same rows with dicts for state, on one core.
The other is the stage: the same rows through the same shuffle and a Python stage that returns them. The
bound adds the time of the stage to that of the code on all cores. An engine with user code in Spark's
workers can only be faster where it overlaps the two.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.bench.common import report
from headrace.bench.common.cpu import used_s
from headrace.bench.common.follow import Ran, follow
from headrace.bench.common.session import local_session
from headrace.bench.common.sides import CHANGELOG
from headrace.bench.common.sides import floor as stage
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
from headrace.clock import SYSTEM_CLOCK

PARTITIONS = 2
WARM_UP = 5  # batches of a query of the warm-up
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
    """Rows per batch of the warm-up and of the measured query, seconds of warm-up, a factor of keys."""

    small_rows: int
    rows: int
    warm_up_s: float
    scale: float


FULL, QUICK = _Size(2_500, 50_000, 10.0, 1.0), _Size(2_500, 5_000, 3.0, 0.1)


@dataclass(frozen=True)
class Side:
    """One measurement: rows per second, and CPU time of all processes over the whole query."""

    rows_per_s: float
    cpu_us_per_row: float


Sides = dict[str, Side]  # "headrace", "spark" or "builtin"; then "stage" where there is a floor


def run(*, quick: bool = False, only: list[str] | None = None, console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    sides: dict[str, Sides] = {}
    floors: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        settings = {"spark.headrace.partitions": str(PARTITIONS), **CHANGELOG.settings}
        with local_session("headrace-bench-processor", scratch, PARTITIONS, settings) as spark:
            bench = _Bench(spark, scratch, QUICK if quick else FULL, console)
            for case in CASES:
                if not only or case.name in only:
                    sides[case.name] = bench.measured(case)
                    if case.processor is not None:
                        floors[case.name] = floor_rows_per_s(case.processor(), bench.input(case))
    return _report(sides, floors, quick, console)


@dataclass(frozen=True, eq=False)
class _Bench:
    """A session, and what all measurements share."""

    spark: Any
    scratch: Path
    size: _Size
    console: Console

    def input(self, case: Case) -> Path:
        return self.scratch / f"input-{case.name}"

    def measured(self, case: Case) -> Sides:
        """A case's sides, each after its warm-up."""
        keys, size, warm_up = (
            int(case.keys * self.size.scale),
            self.size,
            self.scratch / f"small-{case.name}",
        )
        write(Workload(keys, None, (Phase("main", WARM_UP, size.small_rows),)), warm_up)
        main = Phase("main", SKIPPED - 1 + case.batches, size.rows)
        write(Workload(keys, None, (Phase("load", 1, size.rows, load=True), main)), self.input(case))
        sides: Sides = {}
        names = ["headrace", "spark" if case.other is None else "builtin"]
        for name in [*names, *([] if case.processor is None else ["stage"])]:
            self._warm_up(case, name, warm_up)
            begun_s = self._cpu_s()
            ran = self._ran(case, name, self.input(case), "measured")
            cpu_us = (self._cpu_s() - begun_s) * 1e6
            sides[name] = Side(ran.rows_per_s(skipped=SKIPPED), cpu_us / sum(ran.rows.values()))
        return sides

    def _warm_up(self, case: Case, side: str, folder: Path) -> None:
        """Runs queries of some small batches until the time is over."""
        begun_ms, number = SYSTEM_CLOCK.monotonic_ms(), 0
        while SYSTEM_CLOCK.monotonic_ms() - begun_ms < self.size.warm_up_s * 1000:
            number += 1
            self._ran(case, side, folder, f"warm-up {number}")

    def _ran(self, case: Case, side: str, folder: Path, what: str) -> Ran:
        import headrace as hr

        source = (
            self.spark.readStream.schema("key bigint, amount bigint")
            .option("maxFilesPerTrigger", FILES_PER_BATCH)
            .parquet(str(folder))
        )
        grouped = source.groupBy("key") if side == "spark" else hr.stream(source).groupBy("key")
        build = case.other if side == "builtin" and case.other is not None else case.build
        results = stage(source, PARTITIONS, "key") if side == "stage" else build(grouped)
        title = f"{case.name}, {side}, {what}"
        checkpoint = self.scratch / f"checkpoint-{title}".replace(", ", "-").replace(" ", "-")
        mode = "append" if side == "stage" else "update"
        return follow(results, checkpoint, title, self.console, mode=mode)

    def _cpu_s(self) -> float:
        from headrace.spark.driver.driver import coordinator_for

        return used_s(host.pid for host in coordinator_for(self.spark).hosts().values())


def _report(sides: dict[str, Sides], floors: dict[str, float], quick: bool, console: Console) -> str:
    titles = ("case", "rows/s", "other", "ratio", "CPU µs/row", "other", "code alone, rows/s", "bound")
    rows = [_line(name, sides[name], floors.get(name)) for name in sides]
    report.show(console, "processors", titles, rows)
    ratios, cpu = {}, {}
    for case in CASES:
        if case.name in sides:
            ours, theirs = _compared(sides[case.name])
            ratios[case.ratio] = ours.rows_per_s / theirs.rows_per_s
            cpu[case.ratio] = round(theirs.cpu_us_per_row / ours.cpu_us_per_row, 2)
    return report.last_line("processor", ratios, quick=quick, cpu_ratios=cpu, **_figures(sides, floors))


def _compared(sides: Sides) -> tuple[Side, Side]:
    """The two sides of a ratio."""
    ours, theirs, *_ = sides.values()
    return ours, theirs


def _bound(sides: Sides, floor: float) -> float:
    """Rows per second if user code on all cores follows the stage."""
    return 1 / (1 / sides["stage"].rows_per_s + 1 / (floor * PARTITIONS))


def _figures(sides: dict[str, Sides], floors: dict[str, float]) -> dict[str, Any]:
    per_s = {
        name: {side: round(one.rows_per_s) for side, one in both.items()} for name, both in sides.items()
    }
    for name, floor in floors.items():
        per_s[name]["floor"] = round(floor)
        per_s[name]["bound"] = round(_bound(sides[name], floor))
    cpu = {
        name: {side: round(one.cpu_us_per_row, 1) for side, one in both.items()}
        for name, both in sides.items()
    }
    return {"rows_per_s": per_s, "cpu_us_per_row": cpu}


def _line(name: str, sides: Sides, floor: float | None) -> tuple[str, ...]:
    ours, theirs = _compared(sides)
    speeds = (
        f"{ours.rows_per_s:,.0f}",
        f"{theirs.rows_per_s:,.0f}",
        f"{ours.rows_per_s / theirs.rows_per_s:.1f}",
    )
    cpu = (f"{ours.cpu_us_per_row:.1f}", f"{theirs.cpu_us_per_row:.1f}")
    bound = ("", "") if floor is None else (f"{floor:,.0f}", f"{_bound(sides, floor):,.0f}")
    return name, *speeds, *cpu, *bound
