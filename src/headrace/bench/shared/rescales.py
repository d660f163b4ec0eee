"""The first batch with another number of partitions, against one that downloads all segments first.

Each change is a new start on an empty machine, from 4 partitions to 8 and back. What a rescale itself
writes is counted: segments beside the one that each operator commits per partition.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.bench.shared.host import Far
from headrace.bench.shared.lab import Lab, Size, State
from headrace.bench.shared.requests import logged
from headrace.bench.shared.rows import uniform
from headrace.format.names import LEASE, leased_through
from headrace.plan.partitions.layouts import rescaled

FILLS = ("ranges", "whole")


@dataclass
class Rescales:
    """First batches in milliseconds, by direction and way to read; and what the changes wrote."""

    ms: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    segments: int = 0

    @property
    def ratios(self) -> dict[str, float]:
        """The time with all segments downloaded first over the time without."""
        ways = ("out", "in")
        return {f"scale_{way}": self._median(way, "whole") / self._median(way, "ranges") for way in ways}

    @property
    def figures(self) -> dict[str, Any]:
        """What the JSON line has beside the ratios."""
        times = {f"{way}_{fill}_ms": round(self._median(way, fill), 1) for way, fill in self.ms}
        ratios = {f"{name}_ratio": round(ratio, 2) for name, ratio in self.ratios.items()}
        return {**times, **ratios, "segments_written": self.segments}

    def _median(self, way: str, fill: str) -> float:
        return statistics.median(self.ms[way, fill])


def measure_rescales(lab: Lab, state: State, latency_ms: float, size: Size) -> Rescales:
    """Scales a state out and in again, as often as the size has repeats, both ways to read in turn."""
    rescales = Rescales()
    few = size.partitions
    for repeat in range(size.repeats):
        for fill in FILLS:
            for way, partitions in (("out", 2 * few), ("in", few)):
                log = lab.folder / f"{way}-{fill}-{latency_ms:g}-{repeat}.requests"
                far = Far(latency_ms, fill=fill, log=str(log))
                rescales.ms[way, fill].append(_rescale(lab, state, partitions, far, size.touched[0]))
                rescales.segments += _beside_commits(log, partitions * len(state.job.specs))
    return rescales


def _rescale(lab: Lab, state: State, partitions: int, far: Far, touched: int) -> float:
    """The first batch of a start with so many partitions."""
    state.job = state.job.with_partitions(partitions)
    state.layouts = rescaled(state.layouts, state.batches - 1, partitions)
    with lab.host(state, far) as host:
        return state.next(host, uniform, touched).result_ms


def _beside_commits(log: Path, committed: int) -> int:
    """Segments written beside those that the batch commits, and beside compactions."""
    puts = [each.name for each in logged(log) if each.operation == "put" and "/segments/" in each.name]
    return sum(leased_through(name) < LEASE for name in puts) - committed
