"""The results of a throttled run: latencies, batch sizes and their growth. Pure, except for printing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

from headrace.bench.commit.report import P99_SAMPLES
from headrace.bench.common import report as common
from headrace.generators.records.lines import RECORD_BYTES

TENTHS = tuple(range(10, 100, 10))  # points of the distribution function, in percent
ENDS = 10  # batches at either end of a run


@dataclass(frozen=True)
class Arrival:
    """One batch: the records that had arrived, and the time it took."""

    records: int
    took_ms: float


@dataclass(frozen=True)
class Paced:
    """The measured batches of one query on one side at one rate, in order."""

    batches: list[Arrival]

    @property
    def took_ms(self) -> list[float]:
        return [batch.took_ms for batch in self.batches]

    @property
    def mean_ms(self) -> float:
        return statistics.fmean(self.took_ms)

    @property
    def p99_ms(self) -> float | None:
        """None if there are too few batches for a 99th percentile."""
        return None if len(self.batches) < P99_SAMPLES else float(np.percentile(self.took_ms, 99))

    @property
    def distribution_ms(self) -> dict[str, float]:
        """The distribution function of the latencies: percent, and milliseconds."""
        return {str(at): round(float(np.percentile(self.took_ms, at)), 1) for at in TENTHS}

    @property
    def size_growth(self) -> float:
        """Median records of the last ten batches over that of the first ten; 1 if the side keeps up."""
        first, last = self.batches[:ENDS], self.batches[-ENDS:]
        return statistics.median(b.records for b in last) / statistics.median(b.records for b in first)

    @property
    def kb_per_s(self) -> float:
        """Bytes of the batches over the time that they took, as the paper has it."""
        records = sum(batch.records for batch in self.batches)
        return records * RECORD_BYTES / sum(self.took_ms)

    def as_json(self) -> dict[str, Any]:
        return {
            "batches": len(self.batches),
            "mean_ms": round(self.mean_ms, 1),
            "p99_ms": None if self.p99_ms is None else round(self.p99_ms, 1),
            "cdf_ms": self.distribution_ms,
            "size_growth": round(self.size_growth, 3),
            "kb_per_s": round(self.kb_per_s, 1),
            "took_ms": [round(ms) for ms in self.took_ms],
            "records": [batch.records for batch in self.batches],
        }


Runs = Mapping[tuple[int, str, str], Paced]  # by rate, side and query


def ratios_of(runs: Runs) -> dict[str, float]:
    """Each other side over `async`: mean and 99th percentile; only of runs that are long enough for one."""
    ratios: dict[str, float] = {}
    for (rate, side, name), other in runs.items():
        ours = runs.get((rate, "async", name))
        if ours is None or side == "async" or ours.p99_ms is None or other.p99_ms is None:
            continue
        ratios[f"p99_vs_{side}.{name}.{rate}"] = other.p99_ms / ours.p99_ms
        ratios[f"mean_vs_{side}.{name}.{rate}"] = other.mean_ms / ours.mean_ms
    return ratios


def report(sides: Sequence[str], runs: Runs, trigger_s: float, console: Console) -> str:
    """Prints the table and returns the JSON line."""
    rows = []
    for rate, name in dict.fromkeys((rate, name) for rate, _, name in runs):
        rows.append([f"{name}, {rate}/s", *(_cell(runs[rate, side, name]) for side in sides)])
    title = f"ms per batch (p99), growth of the batches; trigger {trigger_s:g} s"
    common.show(console, title, ("", *sides), rows)
    return common.last_line(
        "commit_throttled",
        ratios_of(runs),
        trigger_s=trigger_s,
        runs={f"{side}.{name}.{rate}": run.as_json() for (rate, side, name), run in runs.items()},
    )


def _cell(run: Paced) -> str:
    p99 = "" if run.p99_ms is None else f" ({run.p99_ms:,.0f})"
    return f"{run.mean_ms:,.0f}{p99}, {run.size_growth:.2f}"
