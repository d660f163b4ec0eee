"""The results of the `commit` benchmark, as ratios and as tables. Pure, except for printing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from headrace.bench.common import report as common

P99_SAMPLES = 100
OF_LATENCY = "critical_path_sync_over_async"  # requests to slow storage, whatever the speed of the machine


@dataclass(frozen=True)
class Outcome:
    """The measured batches of one query on one side, in order."""

    batches: tuple[int, ...]
    rows: int
    took_ms: tuple[float, ...]
    critical_ms: tuple[float, ...] = ()  # critical path of the commit, all operators
    host_peak_bytes: int = 0

    def then(self, more: Outcome) -> Outcome:
        """This outcome and a repetition of it, combined."""
        return Outcome(
            (*self.batches, *more.batches),
            self.rows + more.rows,
            (*self.took_ms, *more.took_ms),
            (*self.critical_ms, *more.critical_ms),
            max(self.host_peak_bytes, more.host_peak_bytes),
        )

    @property
    def p99_ms(self) -> float | None:
        """None if there are too few batches for a 99th percentile."""
        if len(self.took_ms) < P99_SAMPLES:
            return None
        return float(np.percentile(self.took_ms, 99))

    @property
    def rows_per_s(self) -> float:
        return self.rows / (sum(self.took_ms) / 1000)

    @property
    def critical_median_ms(self) -> float:
        return statistics.median(self.critical_ms)


Outcomes = dict[tuple[str, str, str], Outcome]  # by load, side and query
SMALL, LARGE, LONG = "small", "large", "long"


def ratios_of(names: Sequence[str], outcomes: Mapping[tuple[str, str, str], Outcome]) -> dict[str, float]:
    """All ratios: one per query under `<ratio>.<query>`, and the least of them under `<ratio>`."""
    ratios: dict[str, float] = {}
    for ratio, of_query in _by_query(names, outcomes).items():
        if of_query:
            ratios[ratio] = min(of_query.values())
            ratios |= {f"{ratio}.{name}": value for name, value in of_query.items()}
    long = outcomes.get((LONG, "async", "lr2"))
    if long is not None:
        ratios["lr2_growth"] = growth(long)
    return ratios


def growth(long: Outcome) -> float:
    """The median of the last ten batches over that of batches 11 to 20; the first ten are not measured."""
    return statistics.median(long.took_ms[-10:]) / statistics.median(long.took_ms[:10])


def _by_query(
    names: Sequence[str], outcomes: Mapping[tuple[str, str, str], Outcome]
) -> dict[str, dict[str, float]]:
    ratios: dict[str, dict[str, float]] = {"critical_path_sync_over_async": {}}
    for name in names:
        sync, ours = (outcomes.get((SMALL, mode, name)) for mode in ("sync", "async"))
        if sync and ours:
            ratios["critical_path_sync_over_async"][name] = (
                sync.critical_median_ms / ours.critical_median_ms
            )
        large = outcomes.get((LARGE, "async", name))
        for side in ("spark", "changelog", "upload"):
            other = outcomes.get((LARGE, side, name))
            if large and other:
                if large.p99_ms and other.p99_ms:
                    ratios.setdefault(f"p99_vs_{side}", {})[name] = other.p99_ms / large.p99_ms
                ratios.setdefault(f"throughput_vs_{side}", {})[name] = large.rows_per_s / other.rows_per_s
        upload = outcomes.get((LARGE, "upload", name))
        if large and upload:
            over = upload.critical_median_ms / large.critical_median_ms
            ratios.setdefault("critical_path_upload_over_async", {})[name] = over
        floor, spark = (outcomes.get((LARGE, side, name)) for side in ("floor", "spark"))
        if floor and spark:
            ratios.setdefault("floor_throughput_vs_spark", {})[name] = floor.rows_per_s / spark.rows_per_s
    return ratios


def report(
    names: Sequence[str],
    sides: Sequence[str],
    outcomes: Mapping[tuple[str, str, str], Outcome],
    failed: Sequence[str],
    memory_bytes: int,
    console: Console,
    *,
    is_short: bool = False,
) -> str:
    """Prints the tables and returns the JSON line; a short run has no ratio of speeds."""
    _show_critical(names, outcomes, console)
    _show_large(names, sides, outcomes, console)
    ratios = ratios_of(names, outcomes)
    if is_short:
        console.print("a short run checks that all sides run; it prints no ratio of speeds")
        ratios = {name: value for name, value in ratios.items() if name.startswith(OF_LATENCY)}
    ours = {".".join(key): one for key, one in outcomes.items() if one.host_peak_bytes}
    large = {f"{side}.{name}": one for (load, side, name), one in outcomes.items() if load == LARGE}
    return common.last_line(
        "commit",
        ratios,
        critical_ms={name: round(one.critical_median_ms, 2) for name, one in ours.items()},
        p99_ms={name: round(one.p99_ms) for name, one in large.items() if one.p99_ms},
        rows_per_s={name: round(one.rows_per_s) for name, one in large.items()},
        batch_ms={".".join(key): round(statistics.median(one.took_ms)) for key, one in outcomes.items()},
        host_peak_mb={name: common.mb(one.host_peak_bytes) for name, one in ours.items()},
        memory_mb=common.mb(memory_bytes),
        failed=list(failed),
    )


def _show_critical(
    names: Sequence[str], outcomes: Mapping[tuple[str, str, str], Outcome], console: Console
) -> None:
    rows = []
    for name in names:
        measured = [outcomes.get((SMALL, mode, name)) for mode in ("sync", "async")]
        rows.append([name, *(f"{one.critical_median_ms:,.1f}" if one else "" for one in measured)])
    common.show(console, "ms of the commit that a small batch waits for", ("", "sync", "async"), rows)


def _show_large(
    names: Sequence[str],
    sides: Sequence[str],
    outcomes: Mapping[tuple[str, str, str], Outcome],
    console: Console,
) -> None:
    rows = []
    for name in names:
        measured = [outcomes.get((LARGE, side, name)) for side in sides]
        rows.append([name, *(_rate(one) if one else "" for one in measured)])
    common.show(console, "unthrottled: records per second / p99 of a batch in ms", ("", *sides), rows)


def _rate(one: Outcome) -> str:
    rate = f"{one.rows_per_s:,.0f}"
    return rate if one.p99_ms is None else f"{rate} / {one.p99_ms:,.0f}"
