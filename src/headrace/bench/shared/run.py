"""`headrace bench shared`: a running aggregate, or the logistics job, whose state is on shared storage.

State of two sizes, the larger one a hundred times the smaller, is built once on the disk. Every measurement
starts a host with an empty local directory over storage with a latency per request and a shared bandwidth.
A part begins with the states as they were built, so parts can be run one by one.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from rich.console import Console

from headrace.bench.common import report
from headrace.bench.shared.cpu import cpu_uses
from headrace.bench.shared.host import Far
from headrace.bench.shared.jobs import STORED_ROWS, Workload, job_of
from headrace.bench.shared.kept import FOLDER, Kept
from headrace.bench.shared.lab import FULL, QUICK, Keys, Lab, Size, State
from headrace.bench.shared.openings import count_openings
from headrace.bench.shared.rescales import measure_rescales
from headrace.bench.shared.rows import hot_spot, skewed, uniform
from headrace.kernels.warm import warm

Part = Literal[
    "recovery",
    "checkpoint",
    "cache_tenth",
    "cache_tenth_hot",
    "cache_tenth_uniform",
    "cpu",
    "opening",
    "rescale",
]
PARTS: tuple[Part, ...] = get_args(Part)
LATENCIES_MS = (1.5, 23.0)
RATIO_MS = 23.0  # the latency of the ratios
CACHE_LOADS: dict[str, tuple[Keys, int]] = {
    "cache_tenth": (skewed, 10_000),
    "cache_tenth_hot": (hot_spot, 50_000),
    "cache_tenth_uniform": (uniform, 1_000),
}


def run(
    *,
    quick: bool = False,
    workload: Workload = "totals",
    parts: Sequence[Part] = PARTS,
    latencies_ms: Sequence[float] = LATENCIES_MS,
    console: Console | None = None,
    scratch: Path | None = None,
    keep: bool = False,
) -> str:
    """Runs the benchmark, or some parts of it, and returns its JSON line."""
    console = console or Console(stderr=True)
    if keep and scratch is None:
        raise ValueError("--keep needs --scratch, the folder where the states stay")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=scratch) as folder:
        size, lab = QUICK if quick else FULL, Lab(Path(folder), (QUICK if quick else FULL).memory_bytes)
        states = scratch / FOLDER if keep and scratch is not None else Path(folder) / FOLDER
        return Bench(size, workload, Kept(lab, states), console, latencies_ms).run(parts)


class Bench:
    """One run; figures are collected in `figures` and `ratios`."""

    def __init__(
        self, size: Size, workload: Workload, kept: Kept, console: Console, latencies_ms: Sequence[float]
    ) -> None:
        self._size, self._workload, self._console = size, workload, console
        self._kept, self._lab, self._latencies_ms = kept, kept.lab, latencies_ms
        self._job = job_of(workload, size.partitions)
        self.ratios: dict[str, float] = {}
        self.figures: dict[str, Any] = {}

    def run(self, parts: Sequence[Part]) -> str:
        warm()
        with self._small() as small, self._large() as large:
            self.figures["state_mb"] = {"small": report.mb(small.nbytes), "large": report.mb(large.nbytes)}
        measures: dict[str, Callable[[], None]] = {
            "recovery": self._recoveries,
            "checkpoint": self._checkpoints,
            **{name: partial(self._caches, name, *load) for name, load in CACHE_LOADS.items()},
            "cpu": self._cpu,
            "opening": self._openings,
            "rescale": self._rescales,
        }
        for part in parts:
            self._console.print(f"{part} …")
            measures[part]()
        report.show(
            self._console,
            "shared storage",
            ["ratio", "value"],
            [[k, f"{v:.2f}"] for k, v in self.ratios.items()],
        )
        return report.last_line("shared", self.ratios, workload=self._workload, **self.figures)

    # ── states ───────────────────────────────────────────────────────────────────────────────

    def _small(self) -> AbstractContextManager[State]:
        return self._state(1)

    def _large(self) -> AbstractContextManager[State]:
        return self._state(self._size.factor)

    def _state(self, factor: int) -> AbstractContextManager[State]:
        keys = factor * (self._size.small_keys // STORED_ROWS[self._workload])
        return self._kept.state(self._workload, self._job, keys)

    # ── recovery ─────────────────────────────────────────────────────────────────────────────

    def _recoveries(self) -> None:
        for latency_ms in self._latencies_ms:
            with self._small() as small, self._large() as large:
                self._recovery(small, large, latency_ms)

    def _recovery(self, small: State, large: State, latency_ms: float) -> None:
        ranges, whole = Far(latency_ms), Far(latency_ms, fill="whole")
        firsts = {n: self._first_ms(large, ranges, n) for n in self._size.touched}
        download = self._first_ms(large, whole, self._size.touched[0])
        smaller = self._first_ms(small, ranges, self._size.touched[0])
        first = firsts[self._size.touched[0]]
        self.figures[f"recovery_{latency_ms:g}ms"] = {
            "first_batch_ms": {str(n): round(ms, 1) for n, ms in firsts.items()},
            "small_ms": round(smaller, 1),
            "whole_ms": round(download, 1),
            "ratio_by_keys": {str(n): round(download / ms, 2) for n, ms in firsts.items()},
        }
        if latency_ms == RATIO_MS:
            self.ratios["recovery"] = download / first
            self.ratios["recovery_growth"] = first / smaller

    def _first_ms(self, state: State, far: Far, touched: int) -> float:
        """The first batch after the loss of the local disk; the median of all repeats."""
        figures = []
        for _ in range(self._size.repeats):
            with self._lab.host(state, far) as host:
                figures.append(state.next(host, uniform, touched).result_ms)
        return statistics.median(figures)

    # ── commits ──────────────────────────────────────────────────────────────────────────────

    def _checkpoints(self) -> None:
        with self._small() as small, self._large() as large:
            times = {"small": self._commits_ms(small), "large": self._commits_ms(large)}
        for share in (50, 99):
            of = {name: float(np.percentile(ms, share)) for name, ms in times.items()}
            self.figures[f"commit_p{share}_ms"] = {name: round(ms, 1) for name, ms in of.items()}
            self.ratios["checkpoint_growth" if share == 50 else "checkpoint_growth_p99"] = (
                of["large"] / of["small"]
            )

    def _commits_ms(self, state: State) -> list[float]:
        with self._lab.host(state, Far(RATIO_MS)) as host:
            batches = [state.next(host, uniform, 1_000) for _ in range(self._size.commits)]
        return [batch.commit_ms for batch in batches[1:]]

    # ── a cache of a tenth ───────────────────────────────────────────────────────────────────

    def _caches(self, name: str, draw: Keys, rows: int) -> None:
        for latency_ms in self._latencies_ms:
            with self._large() as state:
                tenth = Far(latency_ms, disk=str(state.nbytes // 10))
                everything = Far(latency_ms, disk=str(10 * state.nbytes), fill="whole")
                rates = [self._rows_per_s(state, far, draw, rows) for far in (tenth, everything)]
            ratio_name = name if latency_ms == RATIO_MS else f"{name}_{latency_ms:g}ms"
            self.ratios[ratio_name] = rates[0] / rates[1]
            self.figures[f"{ratio_name}_rows_per_s"] = [round(rate) for rate in rates]

    def _rows_per_s(self, state: State, far: Far, draw: Keys, rows: int) -> float:
        """After as many batches to warm up: rows over the time to results and commits."""
        with self._lab.host(state, far) as host:
            for _ in range(self._size.batches):
                state.next(host, draw, rows)
            measured = [state.next(host, draw, rows) for _ in range(self._size.batches)]
        took_ms = sum(batch.result_ms + batch.commit_ms for batch in measured)
        return 1000 * sum(batch.rows for batch in measured) / took_ms

    # ── compaction elsewhere ─────────────────────────────────────────────────────────────────

    def _cpu(self) -> None:
        """How even the host's CPU is; both sides end with the same state."""
        job = job_of("totals", self._size.partitions)
        uses = cpu_uses(self._lab, job, 10 * self._size.small_keys, self._size.cpu_batches)
        self.ratios["cpu_smooth"] = uses["remote"].unevenness / uses["local"].unevenness
        self.figures["cpu"] = {side: use.figures for side, use in uses.items()}

    # ── starts, and another number of partitions ─────────────────────────────────────────────

    def _openings(self) -> None:
        self.figures.update(count_openings(self._kept, self._size))

    def _rescales(self) -> None:
        for latency_ms in self._latencies_ms:
            with self._large() as state:
                rescales = measure_rescales(self._lab, state, latency_ms, self._size)
            self.figures[f"rescale_{latency_ms:g}ms"] = rescales.figures
            if latency_ms == RATIO_MS:
                self.ratios.update(rescales.ratios)
