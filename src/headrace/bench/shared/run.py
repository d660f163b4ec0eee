"""`headrace bench shared`: a running aggregate whose state is on shared storage.

State of two sizes, the larger one a hundred times the smaller, is built once on the disk. Every measurement
starts a host with an empty local directory over storage with a latency per request and a shared bandwidth.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from headrace.bench.common import report
from headrace.bench.shared.cpu import cpu_use
from headrace.bench.shared.host import Batch, Far, Host
from headrace.bench.shared.rows import hot_spot, skewed, spec_of, uniform
from headrace.kernels.warm import warm
from headrace.row.arrays import I64

LATENCIES_MS = (1.5, 23.0)
RATIO_MS = 23.0  # the latency of the ratios
LOAD_ROWS = 1_000_000
Keys = Callable[[np.random.Generator, int, int], I64]


CACHE_LOADS: tuple[tuple[str, Keys, int], ...] = (
    ("cache_tenth", skewed, 10_000),
    ("cache_tenth_hot", hot_spot, 50_000),
    ("cache_tenth_uniform", uniform, 1_000),
)


@dataclass(frozen=True)
class Size:
    """What is measured."""

    small_keys: int
    partitions: int
    repeats: int
    touched: tuple[int, ...]  # keys of a first batch
    commits: int
    batches: int  # with a cache of a tenth
    cpu_batches: int
    memory_bytes: int
    factor: int = 100


QUICK = Size(20_000, 4, 1, (1_000, 10_000), 20, 4, 120, 128 << 20)
FULL = Size(350_000, 4, 3, (1_000, 10_000, 100_000), 300, 20, 400, 256 << 20)


def run(*, quick: bool = False, console: Console | None = None, scratch: Path | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=scratch) as folder:
        return Bench(QUICK if quick else FULL, Path(folder), console).run()


class Bench:
    """One run; figures are collected in `figures` and `ratios`."""

    def __init__(self, size: Size, folder: Path, console: Console) -> None:
        self._size, self._folder, self._console = size, folder, console
        self._starts = 0
        self._spec = spec_of("totals", size.partitions)
        self.ratios: dict[str, float] = {}
        self.figures: dict[str, Any] = {}

    def run(self) -> str:
        warm()
        small, large = self._built("small", 1), self._built("large", self._size.factor)
        self.figures["state_mb"] = {"small": report.mb(small.nbytes), "large": report.mb(large.nbytes)}
        for latency_ms in LATENCIES_MS:
            self._recovery(small, large, latency_ms)
        self._checkpoints(small, large)
        for latency_ms in LATENCIES_MS:
            self._cache(large, latency_ms)
        self._cpu()
        report.show(
            self._console,
            "shared storage",
            ["ratio", "value"],
            [[k, f"{v:.2f}"] for k, v in self.ratios.items()],
        )
        return report.last_line("shared", self.ratios, **self.figures)

    # ── state ────────────────────────────────────────────────────────────────────────────────

    def _built(self, name: str, factor: int) -> State:
        keys = self._size.small_keys * factor
        self._console.print(f"building the {name} state: {keys} keys …")
        location = self._folder / name
        host = self._host(location, Far())
        try:
            for number, first in enumerate(range(0, keys, LOAD_ROWS)):
                host.batch(number, np.arange(first, min(keys, first + LOAD_ROWS), dtype=np.int64))
        finally:
            host.close()
        return State(location, keys, -(-keys // LOAD_ROWS))

    def _host(self, location: Path, far: Far) -> Host:
        """A new start on an empty machine."""
        self._starts += 1
        local = self._folder / f"local-{self._starts}"
        return Host(self._spec, location, local, self._size.memory_bytes, far, f"start-{self._starts}")

    def _forget(self) -> None:
        shutil.rmtree(self._folder / f"local-{self._starts}", ignore_errors=True)

    # ── recovery ─────────────────────────────────────────────────────────────────────────────

    def _recovery(self, small: State, large: State, latency_ms: float) -> None:
        self._console.print(f"first batches at {latency_ms:g} ms …")
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
            host = self._host(state.location, far)
            try:
                figures.append(self._next(host, state, uniform, touched).result_ms)
            finally:
                host.close()
                self._forget()
        return statistics.median(figures)

    def _next(self, host: Host, state: State, draw: Keys, n: int) -> Batch:
        keys = draw(np.random.default_rng(state.batches), state.keys, n)
        batch = host.batch(state.batches, keys)
        state.batches += 1
        return batch

    # ── commits ──────────────────────────────────────────────────────────────────────────────

    def _checkpoints(self, small: State, large: State) -> None:
        self._console.print("commits …")
        times = {name: self._commits_ms(state) for name, state in (("small", small), ("large", large))}
        for share in (50, 99):
            of = {name: float(np.percentile(ms, share)) for name, ms in times.items()}
            self.figures[f"commit_p{share}_ms"] = {name: round(ms, 1) for name, ms in of.items()}
            self.ratios["checkpoint_growth" if share == 50 else "checkpoint_growth_p99"] = (
                of["large"] / of["small"]
            )

    def _commits_ms(self, state: State) -> list[float]:
        host = self._host(state.location, Far(RATIO_MS))
        try:
            batches = [self._next(host, state, uniform, 1_000) for _ in range(self._size.commits)]
            return [batch.commit_ms for batch in batches[1:]]
        finally:
            host.close()
            self._forget()

    # ── a cache of a tenth ───────────────────────────────────────────────────────────────────

    def _cache(self, state: State, latency_ms: float) -> None:
        tenth = Far(latency_ms, disk=str(state.nbytes // 10))
        everything = Far(latency_ms, disk=str(10 * state.nbytes), fill="whole")
        for name, draw, rows in CACHE_LOADS:
            self._console.print(f"{name} at {latency_ms:g} ms …")
            rates = [self._rows_per_s(state, far, draw, rows) for far in (tenth, everything)]
            ratio_name = name if latency_ms == RATIO_MS else f"{name}_{latency_ms:g}ms"
            self.ratios[ratio_name] = rates[0] / rates[1]
            self.figures[f"{ratio_name}_rows_per_s"] = [round(rate) for rate in rates]

    def _rows_per_s(self, state: State, far: Far, draw: Keys, rows: int) -> float:
        """After as many batches to warm up: rows over the time to results and commits."""
        host = self._host(state.location, far)
        try:
            for _ in range(self._size.batches):
                self._next(host, state, draw, rows)
            measured = [self._next(host, state, draw, rows) for _ in range(self._size.batches)]
        finally:
            host.close()
            self._forget()
        took_ms = sum(batch.result_ms + batch.commit_ms for batch in measured)
        return 1000 * sum(batch.rows for batch in measured) / took_ms

    # ── compaction elsewhere ─────────────────────────────────────────────────────────────────

    def _cpu(self) -> None:
        """How even the host's CPU is; both sides end with the same state."""
        self._console.print("CPU with compaction here and elsewhere …")
        uses = {}
        for side, remote in (("local", False), ("remote", True)):
            folder, keys = self._folder / f"cpu-{side}", 10 * self._size.small_keys
            place = (self._spec, folder, self._size.memory_bytes, self._size.cpu_batches, keys)
            uses[side] = cpu_use(*place, remote=remote)
            shutil.rmtree(folder, ignore_errors=True)
        self.ratios["cpu_smooth"] = uses["remote"].unevenness / uses["local"].unevenness
        self.figures["cpu"] = {
            side: {
                "p99_over_median": round(use.unevenness, 2),
                "host_s": round(use.host_s, 2),
                "total_s": round(use.total_s, 2),
            }
            for side, use in uses.items()
        }


@dataclass
class State:
    """A state on the disk, and its next batch."""

    location: Path
    keys: int
    batches: int

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.location.rglob("*") if path.is_file())
