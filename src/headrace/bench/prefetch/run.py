"""`headrace bench prefetch`: state ahead of its rows, against LRU, Clock and asynchronous reads.

    replay     traces of keys through a host's partition with cold files; the wait for state by row
    sweeps     the same by skew, by memory and by the sketch's threshold, with plots
    adaptive   the paper's figure 10: who gives hints while keys and read times change; a plot
    flood      a hundred useless hints per row
    yahoo      look-ups of ads in a Redis that is some milliseconds away
    resident   a count per key in Spark with all state in memory: `auto` over `off`
    q13 …      the queries in Spark: loaded to more than memory, then at a pace, cold files

`ratios.<name>_p999_vs_<side>` is the p99.9 of the wait for state by row, that side over prefetching.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.bench.common import report
from headrace.bench.prefetch import plots
from headrace.bench.prefetch.adaptive import BATCHES, CHANGED, FASTER, adaptive, flood, settled_within
from headrace.bench.prefetch.cases import LOOKUPS
from headrace.bench.prefetch.in_spark import FILTER_BYTES, PARTITIONS, Paced, measure, write_input
from headrace.bench.prefetch.queries import FULL, QUERIES, QUICK, SPARK_SIDES, STANDARD
from headrace.bench.prefetch.replay import CLOCK, LRU, PREFETCH, SIDES, Replayed, replay
from headrace.bench.prefetch.resident import resident
from headrace.bench.prefetch.traces import Trace, traces
from headrace.bench.prefetch.yahoo import Redis, yahoo
from headrace.errors import QueryError
from headrace.prefetch.controller import HOT_MAX

SHARE = 8 << 20  # memory of the replayed partition
KEYS, KEYS_QUICK = 500_000, 200_000
PARTS = ("replay", "sweeps", "adaptive", "flood", "yahoo", "resident", *QUERIES)
SKEWS, SIZES, THRESHOLDS = (0.0, 0.5, 0.8, 1.1), (0.5, 1, 2, 16), (4, 16, 64, 255)
_LEAST_MS = 0.001


def run(
    *,
    quick: bool = False,
    parts: Sequence[str] = PARTS,
    sides: Sequence[str] = STANDARD,
    rate: float | None = None,
    drawn: Path | None = None,
    redis: Redis | None = None,
    console: Console | None = None,
) -> str:
    """Runs the parts and returns the JSON line; plots go to the folder `drawn`."""
    _check(parts, PARTS, "parts")
    _check(sides, SPARK_SIDES, "sides")
    bench = _Bench(quick, sides, rate, drawn, redis, console or Console(stderr=True))
    ratios: dict[str, float] = {}
    more: dict[str, Any] = {}
    for part in parts:
        part_ratios, figures = bench.part(part)
        ratios |= part_ratios
        more[part] = figures
    least = {
        f"p999_vs_{side}": [
            value for name, value in ratios.items() if name.endswith(f"_p999_vs_{side}") and value
        ]
        for side in ("lru", "clock", "async", "prefetch_lru")
    }
    ratios |= {name: min(values) for name, values in least.items() if values}
    return report.last_line("prefetch", ratios, **more)


def _check(names: Sequence[str], known: Iterable[str], what: str) -> None:
    strange = [name for name in names if name not in known]
    if strange:
        raise QueryError(f"{what} has {strange[0]}", hint=f"name some of {', '.join(known)}")


class _Bench:
    def __init__(
        self,
        quick: bool,
        sides: Sequence[str],
        rate: float | None,
        drawn: Path | None,
        redis: Redis | None,
        console: Console,
    ) -> None:
        self._quick, self._sides, self._rate = quick, sides, rate
        self._drawn, self._redis, self._console = drawn, redis, console
        self._keys, self._rows, self._batches = (KEYS_QUICK, 10_000, 12) if quick else (KEYS, 20_000, 40)
        self._share = SHARE * self._keys // KEYS

    def part(self, name: str) -> tuple[dict[str, float], Any]:
        """Ratios and figures of one part."""
        if name in QUERIES:
            return self._query(name)
        own: dict[str, Callable[[], tuple[dict[str, float], Any]]] = {
            "replay": self._replay,
            "sweeps": self._sweeps,
            "adaptive": self._adaptive,
            "flood": self._flood,
            "resident": lambda: resident(self._quick, self._console),
            "yahoo": self._yahoo,
        }
        return own[name]()

    # ── replays ──────────────────────────────────────────────────────────────────────────────

    def _replay(self) -> tuple[dict[str, float], Any]:
        measured = {
            trace.name: {side.name: replay(trace, side, self._share) for side in SIDES}
            for trace in traces(self._keys, self._rows, self._batches)
        }
        table = Trace("table", self._keys // 4, self._rows // 2, self._batches, 0.5)
        measured["table"] = {
            side.name: replay(table, side, self._share, HOT_MAX, LOOKUPS) for side in SIDES
        }
        for name, sides in measured.items():
            _show(self._console, name, sides)
        return _ratios(measured), {"share_bytes": self._share, "keys": self._keys, "rows": self._rows}

    def _sweeps(self) -> tuple[dict[str, float], Any]:
        size = (self._keys, self._rows, self._batches // 3)
        plain = Trace("size", *size, 0.375)
        by_skew = {skew: self._waits(Trace("skew", *size, 0.0, skew), self._share) for skew in SKEWS}
        by_size = {part: self._waits(plain, int(self._share * part)) for part in SIZES}
        by_threshold = {
            threshold: {"prefetch": round(replay(plain, PREFETCH, self._share, threshold).p999_ms, 3)}
            for threshold in THRESHOLDS
        }
        lru = by_size[1]["lru"]
        for waits in by_threshold.values():
            waits["lru"] = lru
        sweeps: dict[str, dict[Any, dict[str, float]]] = {
            "skew": dict(by_skew),
            "share": dict(by_size),
            "threshold": dict(by_threshold),
        }
        for name, values in sweeps.items():
            self._plot(
                name, f"p99.9 of the wait for state by {name}", [*values], "ms", list(values.values())
            )
        pairs = [waits for name in ("skew", "share") for waits in sweeps[name].values()]
        behind = sum(
            waits["prefetch"] > min(waits["lru"], waits["clock"]) for waits in pairs if waits["lru"] > 0
        )
        return {"sweep_points_behind": behind}, sweeps

    def _waits(self, trace: Trace, share: int) -> dict[str, float]:
        sides = (LRU, CLOCK, PREFETCH)
        return {side.name: round(replay(trace, side, share).p999_ms, 3) for side in sides}

    def _plot(
        self, name: str, title: str, xs: Sequence[object], unit: str, points: Sequence[dict[str, float]]
    ) -> None:
        if self._drawn is not None:
            lines = {side: [point[side] for point in points] for side in points[0]}
            plots.write(self._drawn, name, title, xs, unit, lines)

    def _adaptive(self) -> tuple[dict[str, float], Any]:
        steps = adaptive()
        settled = {
            "start": settled_within(steps, 0, CHANGED),
            "keys": settled_within(steps, CHANGED, FASTER),
            "reads": settled_within(steps, FASTER, BATCHES),
        }
        misses = [{"misses": float(step.reads.misses), "took": step.took_ms} for step in steps]
        title = "Keys looked up on demand, and ms of a batch"
        self._plot("adaptive", title, range(len(steps)), "", misses)
        runs = [
            (at, step.active, step.reason)
            for at, step in enumerate(steps)
            if not at or steps[at - 1].active != step.active
        ]
        self._console.print(f"adaptive: {runs}; settled within {settled} batches")
        return {}, {"settled_within": settled, "active": runs}

    def _yahoo(self) -> tuple[dict[str, float], Any]:
        if self._redis is None:
            self._console.print("yahoo: left out, no Redis server was given")
            return {}, {}
        return yahoo(self._quick, self._console, self._redis)

    def _flood(self) -> tuple[dict[str, float], Any]:
        measured = flood()
        self._console.print(f"flood: {measured}")
        return {"flood": measured.ratio}, asdict(measured)

    # ── Spark ────────────────────────────────────────────────────────────────────────────────

    def _query(self, name: str) -> tuple[dict[str, float], Any]:
        scale, measured = QUICK if self._quick else FULL, {}
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as text:
            folder = Path(text) / name
            write_input(folder, name, scale)
            rate = self._rate
            for side in self._sides:
                measured[side] = measure(folder, name, SPARK_SIDES[side], scale, rate)
                rate = rate or measured[side].rate
                _show_paced(self._console, name, side, measured[side])
        return _paced_ratios(name, measured), {side: _figures(one) for side, one in measured.items()}


def _show(console: Console, name: str, sides: dict[str, Replayed]) -> None:
    rows = [
        (
            side,
            f"{one.p999_ms:.2f}",
            f"{one.reads.wait_ms:.0f}",
            f"{one.reads.spill_ms:.0f}",
            f"{one.reads.hits / max(1, one.reads.looked_up):.0%}",
            f"{one.keys_read:,}",
            f"{one.apply_ms:.0f}",
        )
        for side, one in sides.items()
    ]
    columns = ("side", "p99.9 wait, ms", "waits, ms", "spills, ms", "ahead", "keys read", "apply, ms")
    report.show(console, f"{name}, cold files", columns, rows)


def _show_paced(console: Console, query: str, side: str, one: Paced) -> None:
    latency = ", ".join(f"{name} {ms:.0f}" for name, ms in one.latency_ms.items())
    console.print(
        f"{query} {side}: {one.rows_per_s:,.0f} events/s at once ({one.load_cpu:.0%} CPU); "
        f"paced {one.rate:,.0f}/s ({one.cpu:.0%} CPU), batch {one.batch_p50_ms:.0f} ms, "
        f"latency {latency} ms; wait p99.9 {one.wait_p999_ms:.2f} ms, sum {one.reads.wait_ms:.0f} ms, "
        f"{one.reads.hits:,} of {one.reads.looked_up:,} keys ahead, spills {one.reads.spill_ms:.0f} ms"
    )


def _figures(one: Paced) -> dict[str, Any]:
    reads = one.reads
    return {
        "events_per_s": round(one.rows_per_s),
        "rate": round(one.rate),
        "cpu": round(one.cpu, 3),
        "latency_ms": one.latency_ms,
        "batch_p50_ms": round(one.batch_p50_ms, 1),
        "wait_p999_ms": round(one.wait_p999_ms, 3),
        "wait_ms": round(reads.wait_ms),
        "spill_ms": round(reads.spill_ms, 1),
        "looked_up": reads.looked_up,
        "hits": reads.hits,
        "hints": reads.hints,
        "in_vain": reads.in_vain,
        "fetched": reads.fetched,
        "state_mb": round(one.state_mb),
        "hint_share": round(one.hint_share, 4),
        "filter_bytes": FILTER_BYTES * PARTITIONS if reads.lookahead == "stage" else 0,
    }


def _over(one: float, other: float) -> float:
    return max(one, _LEAST_MS) / max(other, _LEAST_MS)


def _paced_ratios(query: str, measured: dict[str, Paced]) -> dict[str, float]:
    """Ratios over prefetching; asynchronous reads count with their better cache."""
    if "prefetch" not in measured:
        return {}
    ours, ratios = measured["prefetch"], {}
    asynchronous = [one for side, one in measured.items() if side.startswith("async")]
    best = min(asynchronous, key=lambda one: one.wait_p999_ms, default=None)
    others = {side: one for side, one in measured.items() if side in ("lru", "clock", "prefetch_lru")}
    for side, one in {**others, **({"async": best} if best is not None else {})}.items():
        ratios[f"{query}_p999_vs_{side}"] = _over(one.wait_p999_ms, ours.wait_p999_ms)
        ratios[f"{query}_latency_p999_vs_{side}"] = _over(one.latency_ms["p99.9"], ours.latency_ms["p99.9"])
    if best is not None:
        ratios[f"{query}_batch_p50_over_async"] = ours.batch_p50_ms / best.batch_p50_ms
    if "lru" in measured:
        lru = measured["lru"]
        ratios[f"{query}_throughput_vs_lru"] = ours.rows_per_s / lru.rows_per_s
        ratios[f"{query}_hidden"] = 1 - ours.reads.wait_ms / max(lru.reads.wait_ms, _LEAST_MS)
        read = ours.reads.misses + ours.reads.fetched
        ratios[f"{query}_reads"] = read / max(1, lru.reads.misses)
    return ratios


def _ratios(measured: dict[str, dict[str, Replayed]]) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for other in ("lru", "clock", "async", "prefetch_lru"):
        ratios |= {
            f"replay_{name}_p999_vs_{other}": _over(sides[other].p999_ms, sides["prefetch"].p999_ms)
            for name, sides in measured.items()
        }
    pairs = [(sides["lru"], sides["prefetch"]) for sides in measured.values()]
    ratios["replay_hidden"] = min(
        1 - ahead.reads.wait_ms / max(lru.reads.wait_ms, _LEAST_MS) for lru, ahead in pairs
    )
    ratios["replay_reads"] = max(ahead.keys_read / max(1, lru.keys_read) for lru, ahead in pairs)
    ratios["replay_apply_vs_lru"] = min(_over(lru.apply_ms, ahead.apply_ms) for lru, ahead in pairs)
    return ratios
