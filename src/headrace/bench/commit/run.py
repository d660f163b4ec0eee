"""`headrace bench commit`: MiSA's four queries in every commit mode, and in Spark alone.

Headrace's state is on storage that answers after 23 ms, Spark's on the local disk. Every side reads the
same files in the same batches with the same number of partitions, commits in every batch, and writes to
Spark's `noop` sink. Headrace and Spark each have their own application. Both run all queries over small
batches before anything large is measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from rich.console import Console

from headrace.bench.commit import spark as commit_spark
from headrace.bench.commit.input import KINDS, Load, read, write
from headrace.bench.commit.report import Outcome, Outcomes, report
from headrace.bench.common.follow import Ran, follow
from headrace.bench.common.hostwatch import host_peak_bytes, reset_peaks
from headrace.bench.common.session import local_session
from headrace.bench.common.sides import CHANGELOG, FLOOR, ROCKSDB, floor
from headrace.bench.queries import cluster as cluster
from headrace.bench.queries import linear_road as road
from headrace.errors import HeadraceError, QueryError

PARTITIONS = 8  # as in the paper
LATENCY_MS = 23
MEMORY_BYTES = 256 << 20
OURS: dict[str, Callable[[Any], Any]] = {
    "lr2": road.lr2,
    "lr4": road.lr4,
    "cm1": cluster.cm1,
    "cm2": cluster.cm2,
}
KEYS = {
    "lr2": ("vehicle",),
    "lr4": ("highway", "direction", "segment"),
    "cm1": ("category",),
    "cm2": ("jobId",),
}
NAMES = tuple(OURS)
FEW_GROUPS = ("lr4", "cm1")  # few groups for any number of records: a user would have them combined
Measure = Callable[[Any, str, str, str], Outcome]  # Spark session, load, side, query


@dataclass(frozen=True)
class Scale:
    """The loads: small batches as from a trigger of 3 s, a long series of them, and large ones."""

    small: Load
    long: Load | None  # LR2 only
    large: Load
    large_join: Load  # LR2: one record is thirty rows of Spark's state on either side of the join
    warm: Load  # Spark's warm-up
    rounds: int = 1  # how often the large batches run in each commit mode, in turn
    spark_sides: tuple[str, ...] = ("spark",)
    is_short: bool = False  # checks that all sides run: too few batches for ratios of speeds

    def loads(self, query: str) -> dict[str, Load]:
        loads = {"small": self.small, "large": self.large, "warm": self.warm}
        if query != "lr2":
            return loads
        return {**loads, "large": self.large_join, **({"long": self.long} if self.long else {})}


NORMAL, HEAVY = 4_500, 7_500  # 1500 and 2500 records/s, a trigger of 3 s
QUICK = Scale(
    small=Load(6, NORMAL, 3),
    long=None,
    large=Load(4, 100_000, 2),
    large_join=Load(4, NORMAL, 2),
    warm=Load(2, NORMAL, 0),
    is_short=True,
)
FULL = Scale(
    small=Load(40, NORMAL, 10),
    long=Load(100, NORMAL, 10),
    large=Load(20, 600_000, 4),
    large_join=Load(40, HEAVY, 10),
    warm=Load(20, NORMAL, 0),
    rounds=2,
    spark_sides=("spark", "changelog"),
)
SPARK_SETTINGS = {"spark": ROCKSDB.settings, "changelog": CHANGELOG.settings}
TITLES = {"spark": ROCKSDB.title, "changelog": CHANGELOG.title, FLOOR.name: FLOOR.title}


def run(*, quick: bool = False, only: Sequence[str] = (), console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    return measure_all(QUICK if quick else FULL, names_of(only), console or Console(stderr=True))


def names_of(only: Sequence[str]) -> list[str]:
    """The queries to run, in their order; all of them without a selection."""
    unknown = sorted(set(only) - set(NAMES))
    if unknown:
        raise QueryError(f"no query is called {', '.join(unknown)}", hint=f"choose from {', '.join(NAMES)}")
    return [name for name in NAMES if not only or name in only]


def measure_all(scale: Scale, names: Sequence[str], console: Console) -> str:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        bench = Bench(scale, Path(folder), console)
        console.print("writing the input …")
        for name in names:
            for load in scale.loads(name).values():
                write(load, KINDS[name], bench.scratch / "input")
        with far_storage(LATENCY_MS), bench.session("headrace", {}) as spark:
            bench.measure_ours(spark, names)
        with bench.session("spark", ROCKSDB.settings) as spark:
            bench.measure_spark(spark, names)
    sides = ["async", "upload", *scale.spark_sides, "floor"]
    return report(
        names, sides, bench.outcomes, bench.failed, MEMORY_BYTES, console, is_short=scale.is_short
    )


@contextmanager
def far_storage(latency_ms: float) -> Iterator[None]:
    """Gives slow storage to the hosts of all operators that are built inside the block."""
    from headrace.spark.task import task

    plain, service = task.task_of, f"headrace.testing.faults.slow_blobs:open_far?latency_ms={latency_ms}"
    task.task_of = lambda plan: plain(replace(plan, service=service))
    try:
        yield
    finally:
        task.task_of = plain


class Bench:
    """One execution of the benchmark; `outcomes` grows by one for every finished query."""

    def __init__(self, scale: Scale, scratch: Path, console: Console) -> None:
        self.scale, self.scratch, self.console = scale, scratch, console
        self.outcomes: Outcomes = {}
        self.failed: list[str] = []
        self._runs = 0

    @contextmanager
    def session(self, side: str, more: dict[str, str]) -> Iterator[Any]:
        settings = {
            "spark.headrace.memory": str(MEMORY_BYTES),
            "spark.headrace.partitions": str(PARTITIONS),
            "spark.sql.shuffle.partitions": str(PARTITIONS),
            "spark.sql.session.timeZone": "UTC",
            **more,
        }
        with local_session(
            f"headrace-bench-commit-{side}", self.scratch / side, settings=settings
        ) as spark:
            yield spark

    def measure_ours(self, spark: Any, names: Sequence[str]) -> None:
        """Measures small batches, which also warm the JVM, then large ones."""
        for name in names:
            for mode in ("sync", "async"):
                self._try(self._ours, spark, "small", mode, name)
        if "lr2" in names and self.scale.long:
            self._try(self._ours, spark, "long", "async", "lr2")
        for _ in range(self.scale.rounds):
            for name in names:
                for mode in ("upload", "async"):
                    self._try(self._ours, spark, "large", mode, name)
        for name in names:
            self._try(self._floors, spark, "large", FLOOR.name, name)

    def measure_spark(self, spark: Any, names: Sequence[str]) -> None:
        for name in names:
            self._try(self._sparks, spark, "warm", "spark", name)
        for side in self.scale.spark_sides:
            for name in names:
                self._try(self._sparks, spark, "large", side, name)

    def _try(self, measure: Measure, spark: Any, load: str, side: str, name: str) -> None:
        try:
            outcome, key = measure(spark, load, side, name), (load, side, name)
            self.outcomes[key] = self.outcomes[key].then(outcome) if key in self.outcomes else outcome
        except (HeadraceError, StreamingQueryException) as error:  # the other queries still run
            self.failed.append(f"{load}.{side}.{name}")
            self.console.print(f"{load}.{side}.{name}: {str(error).split('=== Streaming Query ===')[0]}")

    def _ours(self, spark: Any, load: str, mode: str, name: str) -> Outcome:
        reset_peaks(spark)
        spark.conf.set("spark.headrace.commit", mode)
        spark.conf.set("spark.headrace.combine", "on" if name in FEW_GROUPS else "auto")
        chosen = self.scale.loads(name)[load]
        df = OURS[name](read(spark, chosen, KINDS[name], self.scratch / "input"))
        ran = self._follow(df, load, mode, name)
        outcome = _outcome(ran, chosen)
        return replace(outcome, critical_ms=_critical(ran, outcome), host_peak_bytes=host_peak_bytes(spark))

    def _floors(self, spark: Any, load: str, side: str, name: str) -> Outcome:
        """The query's rows with no state at all: no store can be faster."""
        chosen = self.scale.loads(name)[load]
        rows = read(spark, chosen, KINDS[name], self.scratch / "input")
        return _outcome(self._follow(floor(rows, PARTITIONS, *KEYS[name]), load, side, name), chosen)

    def _sparks(self, spark: Any, load: str, side: str, name: str) -> Outcome:
        for key, value in SPARK_SETTINGS[side].items():
            spark.conf.set(key, value)
        chosen = self.scale.loads(name)[load]
        df = commit_spark.QUERIES[name](read(spark, chosen, KINDS[name], self.scratch / "input"))
        return _outcome(self._follow(df, load, side, name), chosen)

    def _follow(self, df: Any, load: str, side: str, name: str) -> Ran:
        title = TITLES.get(side, f"Headrace, {side}")
        self._runs += 1
        checkpoint = self.scratch / f"checkpoint-{self._runs}"
        return follow(df, checkpoint, f"{title}: {name}, {load}", self.console)


def _outcome(ran: Ran, load: Load) -> Outcome:
    """The measured batches; batches that Spark runs without input do not count."""
    batches = [number for number in sorted(ran.rows) if ran.rows[number] and number >= load.skipped]
    return Outcome(
        batches=tuple(batches),
        # Spark counts those of LR2 twice, because its stream is read twice
        rows=len(batches) * load.records,
        took_ms=tuple(ran.took_ms[number] for number in batches),
    )


def _critical(ran: Ran, outcome: Outcome) -> tuple[float, ...]:
    """The critical path of each measured batch, summed over operators, which commit one after another."""
    import headrace as hr

    spent = dict.fromkeys(outcome.batches, 0.0)
    for batches in hr.progress(ran.query).values():
        for batch in batches:
            if batch.batch in spent:
                spent[batch.batch] += batch.critical_ms
    return tuple(spent.values())
