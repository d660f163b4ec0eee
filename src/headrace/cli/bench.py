"""`headrace bench`: the benchmarks. Each imports its modules when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(no_args_is_help=True, help="Benchmarks; the last line of each is one JSON object.")


@app.command()
def processor(
    quick: bool = typer.Option(False, help="Fewer rows, under three minutes."),
    cases: str = typer.Option("", help="Some of value, list, map, frames, groups, arrow."),
) -> None:
    """User processors against PySpark's transformWithState."""
    from headrace.bench.processor.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in cases.split(",") if name]))


@app.command()
def prefetch(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer keys, files and batches.")] = False,
    queries: Annotated[str, typer.Option(help="Some of the parts, such as replay,q13,q19.")] = "",
    sides: Annotated[str, typer.Option(help="Some of the sides in Spark, such as lru,prefetch.")] = "",
    rate: Annotated[float, typer.Option(help="Events per second of paced files; 0: LRU chooses.")] = 0.0,
    plots: Annotated[Path | None, typer.Option(help="A folder for plots of the sweeps.")] = None,
) -> None:
    """State ahead of its rows: the wait for state against LRU, Clock and asynchronous reads, cold files."""
    from headrace.bench.prefetch.queries import STANDARD
    from headrace.bench.prefetch.run import PARTS
    from headrace.bench.prefetch.run import run as run_bench
    from headrace.testing.faults.redis_server import RedisServer, is_installed

    redis = RedisServer if is_installed() else None
    parts = queries.split(",") if queries else PARTS
    chosen = sides.split(",") if sides else STANDARD
    typer.echo(
        run_bench(quick=quick, parts=parts, sides=chosen, rate=rate or None, drawn=plots, redis=redis)
    )


@app.command("async")
def asynchronous(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows; about a minute.")] = False,
    parts: Annotated[str, typer.Option(help="One of waiting, bypass; both without it.")] = "",
) -> None:
    """Asynchronous processors: 5 ms per external read against one at a time and threads; the bypass."""
    from headrace.bench.waiting.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in parts.split(",") if name]))


@app.command()
def rmw(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer batches; under three minutes.")] = False,
    large: Annotated[bool, typer.Option("--large", help="20 M string keys under a 256 MB limit.")] = False,
) -> None:
    """A running count and sum per key, against Spark's RocksDB store and against no state at all."""
    from headrace.bench.rmw import run as run_bench

    typer.echo(run_bench(quick=quick, large=large))


@app.command()
def flowkv(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller state.")] = False,
    queries: Annotated[str, typer.Option(help="Some of them only, such as q5,q7_session.")] = "",
) -> None:
    """FlowKV's eight queries, each with the store that fits it, with RocksDB, and in Spark alone."""
    from headrace.bench.flowkv.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in queries.split(",") if name]))


@app.command("nexmark")
def bench_nexmark(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer events; under three minutes.")] = False,
    queries: Annotated[str, typer.Option(help="Some of them only, such as q3,q20,dedup.")] = "",
) -> None:
    """NEXMark's queries: events per second beside the floor, and against Spark where Spark has them."""
    from headrace.bench.nexmark.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in queries.split(",") if name]))


@app.command()
def readwrite(
    quick: Annotated[bool, typer.Option("--quick", help="1 M keys; under three minutes.")] = False,
) -> None:
    """A count and the last 100 bytes of each of 10 M keys, against the RocksDB store."""
    from headrace.bench.readwrite import run as run_bench

    typer.echo(run_bench(quick=quick))


@app.command()
def stores(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer batches; under two minutes.")] = False,
    workloads: Annotated[str, typer.Option(help="Some only, such as session_holistic.")] = "",
) -> None:
    """Gadget's operators at the level of the store, without Spark, against RocksDB."""
    from headrace.bench.stores.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in workloads.split(",") if name]))


@app.command()
def migration(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer batches; under two minutes.")] = False,
) -> None:
    """The cost of batches while state migrates from memory to another store."""
    from headrace.bench.migration import run as run_bench

    typer.echo(run_bench(quick=quick))


@app.command()
def shared(
    quick: Annotated[bool, typer.Option("--quick", help="Small state; under three minutes.")] = False,
    scratch: Annotated[Path | None, typer.Option(help="A folder on a disk with 15 GB free.")] = None,
    workload: Annotated[
        Literal["totals", "logistics"],
        typer.Option(help="A running aggregate, or orders without repeats joined with shipping updates."),
    ] = "totals",
    parts: Annotated[
        str,
        typer.Option(help="Some of them only, such as recovery,cpu: see docs/benchmarks.md."),
    ] = "",
    latency_ms: Annotated[float, typer.Option(help="1.5 or 23 only; 0 is both.")] = 0.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the states in --scratch for the next run.")
    ] = False,
) -> None:
    """State on slow shared storage: recovery, rescales, commits, a small disk cache."""
    from headrace.bench.shared.run import LATENCIES_MS, PARTS
    from headrace.bench.shared.run import run as run_bench

    chosen = [part for part in PARTS if not parts or part in parts.split(",")]
    times = [latency for latency in LATENCIES_MS if not latency_ms or latency == latency_ms]
    line = run_bench(
        quick=quick, workload=workload, parts=chosen, latencies_ms=times, scratch=scratch, keep=keep
    )
    typer.echo(line)


@app.command()
def commit(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer batches; under three minutes.")] = False,
    queries: Annotated[str, typer.Option(help="Some of them only, such as lr2,cm1.")] = "",
    throttled: Annotated[
        bool,
        typer.Option("--throttled", help="Instead, batches as records arrive; two hours."),
    ] = False,
    trigger: Annotated[float, typer.Option(help="Seconds between throttled batches.")] = 3.0,
) -> None:
    """MiSA's four queries in every commit mode on slow storage, and in Spark alone."""
    from headrace.bench.commit.run import run as run_bench
    from headrace.bench.commit.throttled import run as run_throttled

    only = [name for name in queries.split(",") if name]
    if throttled:
        typer.echo(run_throttled(quick=quick, only=only, trigger_s=trigger))
    else:
        typer.echo(run_bench(quick=quick, only=only))


@app.command()
def bootstrap(
    quick: Annotated[bool, typer.Option("--quick", help="1 M keys; under three minutes.")] = False,
) -> None:
    """Initial state of 10 M keys from a Parquet table, against Spark's initialState."""
    from headrace.bench.bootstrap import run as run_bench

    typer.echo(run_bench(quick=quick))


@app.command("view")
def bench_view(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer turns; under three minutes.")] = False,
    minutes: Annotated[float, typer.Option(help="Also watch memory at 1 Hz for so many minutes.")] = 0,
) -> None:
    """The live view: what an open page costs a query, and its memory over a long time."""
    from headrace.bench.view import run as run_bench

    typer.echo(run_bench(quick=quick, minutes=minutes))
