"""`headrace`: the commands. Each imports its modules when it runs, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from headrace.cli.bench import app as bench
from headrace.cli.savepoint import app as savepoint
from headrace.cli.state import app as state

Name = TypeVar("Name", bound=str)

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="A state engine for PySpark Structured Streaming."
)
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
