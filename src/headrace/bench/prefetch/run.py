"""`headrace bench prefetch`: the wait for state with hints, against LRU, Clock and asynchronous reads.

Replays go through the host's partitions with cold files (`replay`). `ratios.<trace>_p999_vs_lru` is the
p99.9 of the wait for state by row, LRU over prefetching. Sweeps of skew and cache size are replays too.
Spark runs a count per key with resident state, `auto` over `off`, and with state larger than memory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.bench.common import report
from headrace.bench.common.session import local_session
from headrace.bench.prefetch.in_spark import PARTITIONS, throughput, write_input
from headrace.bench.prefetch.replay import CLOCK, LRU, PREFETCH, SIDES, Replayed, replay
from headrace.bench.prefetch.traces import Trace, traces

SHARE = 8 << 20  # memory of the replayed partition
KEYS, KEYS_QUICK = 500_000, 200_000
MODE = "spark.headrace.prefetch"
_LEAST_MS = 0.001


def run(*, quick: bool = False, console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    keys, rows, batches = (KEYS_QUICK, 10_000, 12) if quick else (KEYS, 20_000, 40)
    share = SHARE * keys // KEYS
    measured = {
        trace.name: {side.name: replay(trace, side, share) for side in SIDES}
        for trace in traces(keys, rows, batches)
    }
    for name, sides in measured.items():
        _show(console, name, sides)
    sweeps = _sweeps(keys, rows, 4 if quick else 12, share)
    ratios = _ratios(measured) | _spark(quick, console)
    return report.last_line("prefetch", ratios, sweeps=sweeps, share_bytes=share, keys=keys, rows=rows)


def _show(console: Console, name: str, sides: dict[str, Replayed]) -> None:
    rows = [
        (
            side,
            f"{one.p999_ms:.2f}",
            f"{one.reads.wait_ms:.0f}",
            f"{one.reads.hits / max(1, one.reads.looked_up):.0%}",
            f"{one.keys_read:,}",
            f"{one.apply_ms:.0f}",
        )
        for side, one in sides.items()
    ]
    columns = ("side", "p99.9 wait, ms", "waits, ms", "ahead", "keys read", "apply, ms")
    report.show(console, f"{name}, cold files", columns, rows)


def _over(one: float, other: float) -> float:
    return max(one, _LEAST_MS) / max(other, _LEAST_MS)


def _ratios(measured: dict[str, dict[str, Replayed]]) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for other in ("lru", "clock", "async", "prefetch_lru"):
        each = {
            name: _over(sides[other].p999_ms, sides["prefetch"].p999_ms) for name, sides in measured.items()
        }
        ratios |= {f"{name}_p999_vs_{other}": ratio for name, ratio in each.items()}
        ratios[f"p999_vs_{other}"] = min(each.values())
    pairs = [(sides["lru"], sides["prefetch"]) for sides in measured.values()]
    ratios["hidden"] = min(
        1 - ahead.reads.wait_ms / max(lru.reads.wait_ms, _LEAST_MS) for lru, ahead in pairs
    )
    ratios["reads"] = max(ahead.keys_read / max(1, lru.keys_read) for lru, ahead in pairs)
    ratios["apply_vs_lru"] = min(_over(lru.apply_ms, ahead.apply_ms) for lru, ahead in pairs)
    return ratios


def _sweeps(keys: int, rows: int, batches: int, share: int) -> dict[str, Any]:
    """p99.9 of the wait by skew, and by memory as a part of the standard share."""
    skews = [Trace(f"skew {skew}", keys, rows, batches, 0.0, skew) for skew in (0.5, 0.8, 1.1)]
    by_skew = {trace.name: _waits(trace, share) for trace in skews}
    plain = Trace("size", keys, rows, batches, 0.375)
    by_size = {f"share {part}": _waits(plain, int(share * part)) for part in (0.5, 1, 2)}
    return by_skew | by_size


def _waits(trace: Trace, share: int) -> dict[str, float]:
    sides = (LRU, CLOCK, PREFETCH)
    return {side.name: round(replay(trace, side, share).p999_ms, 3) for side in sides}


def _spark(quick: bool, console: Console) -> dict[str, float]:
    """Throughput in Spark: `auto` over `off` with resident state, `on` over `off` with more than memory."""
    keys, batches = (60_000, 6) if quick else (400_000, 16)
    trace = Trace("q18", keys, keys // 20, batches, 0.375)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as text:
        folder = Path(text)
        write_input(folder / "in", trace, keys // 2)
        settings = {"spark.headrace.partitions": str(PARTITIONS), "spark.headrace.memory": "512m"}
        with local_session("headrace-bench-prefetch", folder / "s1", PARTITIONS, settings) as spark:
            resident = {
                mode: throughput(
                    spark, folder, f"resident_{mode}", {"spark.headrace.prefetch": mode}, batches
                )
                for mode in ("off", "auto")
            }
        small = {**settings, "spark.headrace.memory": f"{max(2, keys // 30_000)}m"}
        with local_session("headrace-bench-prefetch", folder / "s2", PARTITIONS, small) as spark:
            large = {
                mode: throughput(spark, folder, f"large_{mode}", {MODE: mode}, batches)
                for mode in ("off", "on")
            }
    rows = [
        (f"{name} {mode}", f"{rate:,.0f}", f"{wait:.2f}")
        for name, modes in (("resident", resident), ("larger than memory", large))
        for mode, (rate, wait) in modes.items()
    ]
    report.show(console, "in Spark", ("state and hints", "rows/s, median", "p99.9 wait, ms"), rows)
    return {
        "resident": resident["auto"][0] / resident["off"][0],
        "throughput_vs_lru": large["on"][0] / large["off"][0],
    }
