"""`headrace`: the commands. Each imports its modules when it runs, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from headrace.cli.savepoint import app as savepoint
from headrace.cli.state import app as state

Name = TypeVar("Name", bound=str)

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="A state engine for PySpark Structured Streaming."
)
bench = typer.Typer(no_args_is_help=True, help="Benchmarks; the last line of each is one JSON object.")
app.add_typer(bench, name="bench")
app.add_typer(state, name="state")
app.add_typer(savepoint, name="savepoint")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headrace {version('headrace')}, pyspark {version('pyspark')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A state engine for PySpark Structured Streaming."""


@app.command()
def run(
    seconds: Annotated[int, typer.Option(help="How long to keep the stream going.")] = 30,
    out: Annotated[Path, typer.Option(help="Where output, checkpoints and state go.")] = Path("out"),
) -> None:
    """Run NEXMark queries on an embedded Spark, show their progress, then print their results."""
    from headrace.cli.demo import demonstrate

    demonstrate(seconds, out)


Checkpoint = Annotated[str | None, typer.Argument(help="A query's checkpoint: shows its history instead.")]
Local = Annotated[Path | None, typer.Option(help="spark.headrace.state.local, where it was set.")]
Application = Annotated[str, typer.Option(help="Which one, where several run: id, name or pid.")]


@app.command()
def view(
    checkpoint: Checkpoint = None,
    local: Local = None,
    application: Application = "",
    port: Annotated[int, typer.Option(help="A port of loopback; 0 takes any free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Open a live view of a running application, or of the history of a query, in the browser."""
    from headrace.cli.watch import view as watch

    raise typer.Exit(watch(checkpoint, local, application, port, typer.echo, browser=browser))


@app.command()
def top(
    checkpoint: Checkpoint = None,
    local: Local = None,
    application: Application = "",
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
) -> None:
    """Show a running application in the terminal."""
    from headrace.cli.watch import top as watch

    raise typer.Exit(watch(checkpoint, local, application, typer.echo, once=once))


@app.command()
def warm() -> None:
    """Compile the kernels ahead, so that the first query after an installation does not wait for it."""
    from headrace.cli.warm import warm as compile_kernels

    raise typer.Exit(compile_kernels(typer.echo))


@app.command()
def compactor(
    listen: Annotated[str, typer.Option(help="Where hosts reach it, as host:port.")],
    secret_file: Annotated[Path, typer.Option(help="The secret, in a file that only its owner reads.")],
    jobs: Annotated[int, typer.Option(min=1, help="Compactions at a time; more are declined.")] = 2,
) -> None:
    """Compact state on shared storage for the hosts of running applications."""
    from headrace.cli.compactor import run as run_compactor

    raise typer.Exit(run_compactor(listen, secret_file, jobs, typer.echo))


@app.command()
def ysb(
    events: Annotated[int, typer.Option(help="How many ad events.")] = 400_000,
    redis: Annotated[str, typer.Option(help="An empty database; without it a server is started.")] = "",
    restart: Annotated[bool, typer.Option("--restart", help="Restart Redis in the middle.")] = False,
) -> None:
    """Run the Yahoo streaming benchmark with Redis and compare every count with a replay."""
    from headrace.ysb.run import run as run_benchmark

    raise typer.Exit(run_benchmark(events, redis, restart))


@app.command()
def nexmark(
    query: Annotated[str, typer.Argument(help="A query, such as q5; see --list.")] = "",
    events: Annotated[str, typer.Option(help="How many events, such as 200K or 5M.")] = "1M",
    rate: Annotated[str, typer.Option(help="Events per second of event time.")] = "10K",
    batches: Annotated[int, typer.Option(help="In how many batches.")] = 10,
    listed: Annotated[bool, typer.Option("--list", help="List the queries.")] = False,
) -> None:
    """Run one of NEXMark's queries, and show its progress, a part of its result, and its figures."""
    from headrace.cli.nexmark import list_queries
    from headrace.cli.nexmark import run as run_query

    if listed or not query:
        list_queries()
    else:
        run_query(query, events, rate, batches)


@bench.command()
def processor(
    quick: bool = typer.Option(False, help="Fewer rows, under three minutes."),
    cases: str = typer.Option("", help="Some of value, list, map, frames, groups, arrow."),
) -> None:
    """User processors against PySpark's transformWithState."""
    from headrace.bench.processor.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in cases.split(",") if name]))


@bench.command()
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


@bench.command("async")
def asynchronous(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows; about a minute.")] = False,
    parts: Annotated[str, typer.Option(help="One of waiting, bypass; both without it.")] = "",
) -> None:
    """Asynchronous processors: 5 ms per external read against one at a time and threads; the bypass."""
    from headrace.bench.waiting.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in parts.split(",") if name]))


@bench.command()
def rmw(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer batches; under three minutes.")] = False,
    large: Annotated[bool, typer.Option("--large", help="20 M string keys under a 256 MB limit.")] = False,
) -> None:
    """A running count and sum per key, against Spark's RocksDB store and against no state at all."""
    from headrace.bench.rmw import run as run_bench

    typer.echo(run_bench(quick=quick, large=large))


@bench.command()
def flowkv(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller state.")] = False,
    queries: Annotated[str, typer.Option(help="Some of them only, such as q5,q7_session.")] = "",
) -> None:
    """FlowKV's eight queries, each with the store that fits it, with RocksDB, and in Spark alone."""
    from headrace.bench.flowkv.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in queries.split(",") if name]))


@bench.command("nexmark")
def bench_nexmark(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer events; under three minutes.")] = False,
    queries: Annotated[str, typer.Option(help="Some of them only, such as q3,q20,dedup.")] = "",
) -> None:
    """NEXMark's queries: events per second beside the floor, and against Spark where Spark has them."""
    from headrace.bench.nexmark.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in queries.split(",") if name]))


@bench.command()
def readwrite(
    quick: Annotated[bool, typer.Option("--quick", help="1 M keys; under three minutes.")] = False,
) -> None:
    """A count and the last 100 bytes of each of 10 M keys, against the RocksDB store."""
    from headrace.bench.readwrite import run as run_bench

    typer.echo(run_bench(quick=quick))


@bench.command()
def stores(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer batches; under two minutes.")] = False,
    workloads: Annotated[str, typer.Option(help="Some only, such as session_holistic.")] = "",
) -> None:
    """Gadget's operators at the level of the store, without Spark, against RocksDB."""
    from headrace.bench.stores.run import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in workloads.split(",") if name]))


@bench.command()
def migration(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer batches; under two minutes.")] = False,
) -> None:
    """The cost of batches while state migrates from memory to another store."""
    from headrace.bench.migration import run as run_bench

    typer.echo(run_bench(quick=quick))


@bench.command()
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


@bench.command()
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


@bench.command()
def bootstrap(
    quick: Annotated[bool, typer.Option("--quick", help="1 M keys; under three minutes.")] = False,
) -> None:
    """Initial state of 10 M keys from a Parquet table, against Spark's initialState."""
    from headrace.bench.bootstrap import run as run_bench

    typer.echo(run_bench(quick=quick))


@bench.command("view")
def bench_view(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer turns; under three minutes.")] = False,
    minutes: Annotated[float, typer.Option(help="Also watch memory at 1 Hz for so many minutes.")] = 0,
) -> None:
    """The live view: what an open page costs a query, and its memory over a long time."""
    from headrace.bench.view import run as run_bench

    typer.echo(run_bench(quick=quick, minutes=minutes))


@app.command()
def crash(
    rounds: Annotated[int, typer.Option(help="How many times to kill something.")] = 200,
    seed: Annotated[int, typer.Option(help="The first round's seed; a failure names its own.")] = 1,
    lanes: Annotated[int, typer.Option(help="How many rounds run side by side.")] = 2,
    kind: Annotated[str, typer.Option(help="One query only, such as session; all by default.")] = "",
    commit: Annotated[str, typer.Option(help="One mode only: sync, upload or async.")] = "",
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="Instead, every victim at every moment of a commit in every mode."),
    ] = False,
    moment: Annotated[str, typer.Option(help="With --matrix, one moment only, such as uploaded.")] = "",
    victim: Annotated[
        str, typer.Option(help="With --matrix, one only: host, worker, driver or disk.")
    ] = "",
    bridge: Annotated[str, typer.Option(help="The drivers' bridge: auto, jvm or python.")] = "",
    format_: Annotated[str, typer.Option("--format", help="Of Spark's checkpoints: 1 or 2.")] = "",
    prefetch: Annotated[str, typer.Option(help="Hints of the drivers, such as on or door.")] = "",
) -> None:
    """Kill the host, a worker or the driver at random moments and compare the results."""
    from headrace.checkpoint.steps import Moment
    from headrace.plan.lookahead import PREFETCHING
    from headrace.plan.options import BRIDGES, COMMIT_MODES
    from headrace.testing.crash.matrix import VICTIMS
    from headrace.testing.crash.queries import ALL_KINDS
    from headrace.testing.crash.rounds import driver_settings, run_matrix, run_rounds

    settings = driver_settings(
        _one_of(bridge, BRIDGES, "--bridge"),
        _one_of(format_, ("1", "2"), "--format"),
        _one_of(prefetch, PREFETCHING, "--prefetch"),
    )
    mode = _one_of(commit, COMMIT_MODES, "--commit")
    if matrix:
        at, who = _one_of(moment, list(Moment), "--moment"), _one_of(victim, VICTIMS, "--victim")
        raise typer.Exit(run_matrix(lanes, at, who, mode, settings))
    raise typer.Exit(run_rounds(rounds, seed, lanes, _one_of(kind, ALL_KINDS, "--kind"), mode, settings))


def _one_of(value: str, names: Sequence[Name], option: str) -> Name | None:
    """The option's value if it is one of `names`; None when the option is absent."""
    name = next((name for name in names if name == value), None)
    if value and name is None:
        raise typer.BadParameter(f"choose one of {', '.join(names)}", param_hint=option)
    return name


@app.command()
def simulate(
    seeds: Annotated[int, typer.Option(help="How many runs.")] = 1000,
    first: Annotated[int, typer.Option(help="The first run's seed; a violation names its own.")] = 0,
    workers: Annotated[int, typer.Option(help="How many processes run them.")] = 2,
) -> None:
    """Simulate commits over storage that fails and hosts that die, without Spark."""
    from headrace.testing.simulation.many import run_many

    raise typer.Exit(run_many(seeds, first, workers))


@app.command()
def recover(
    checkpoint: Annotated[str, typer.Argument(help="The query's checkpoint location.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Repair; without it, only print what would be done.")
    ] = False,
    local: Annotated[
        Path | None, typer.Option(help="The hosts' local directory, where it was set.")
    ] = None,
) -> None:
    """Repair a checkpoint and its state after a machine was lost."""
    from headrace.cli.recover import recover as repair

    raise typer.Exit(repair(checkpoint, local, yes, typer.echo))


@app.command()
def doctor(
    checkpoint: Annotated[str, typer.Argument(help="The query's checkpoint location.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")] = False,
) -> None:
    """Verify every checksum and reference of a query's state, and suggest what to do."""
    from rich.console import Console

    from headrace.cli.doctor import doctor as examine

    raise typer.Exit(examine(checkpoint, as_json, Console()))


if __name__ == "__main__":
    app()
