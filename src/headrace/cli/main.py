"""`headrace`: the commands. Each loads what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

Name = TypeVar("Name", bound=str)

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="A state engine for PySpark Structured Streaming."
)
bench = typer.Typer(no_args_is_help=True, help="Benchmarks; the last line of each is one JSON object.")
app.add_typer(bench, name="bench")


@app.command()
def run(
    seconds: Annotated[int, typer.Option(help="How long to keep the stream going.")] = 30,
    out: Annotated[Path, typer.Option(help="Where output, checkpoints and state go.")] = Path("out"),
) -> None:
    """Run NEXMark queries on an embedded Spark, showing their progress, then print what they found."""
    from headrace.cli.demo import demonstrate

    demonstrate(seconds, out)


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
    from headrace.bench.flowkv import run as run_bench

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
    from headrace.bench.stores import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in workloads.split(",") if name]))


@bench.command()
def migration(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer batches; under two minutes.")] = False,
) -> None:
    """What batches pay while state moves from memory to another layout."""
    from headrace.bench.migration import run as run_bench

    typer.echo(run_bench(quick=quick))


@bench.command()
def commit(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer batches; about eight minutes.")] = False,
    queries: Annotated[str, typer.Option(help="Some of them only, such as lr2,cm1.")] = "",
) -> None:
    """MiSA's four queries with each way to commit to storage that is far away, and in Spark alone."""
    from headrace.bench.commit import run as run_bench

    typer.echo(run_bench(quick=quick, only=[name for name in queries.split(",") if name]))


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
) -> None:
    """Kill the host, a worker or the driver at random moments and compare the results."""
    from headrace.checkpoint.steps import Moment
    from headrace.options import COMMIT_MODES
    from headrace.testing.crash import run_matrix, run_rounds
    from headrace.testing.crash_matrix import VICTIMS
    from headrace.testing.crash_queries import KINDS

    mode = _one_of(commit, COMMIT_MODES, "--commit")
    if matrix:
        at, who = _one_of(moment, list(Moment), "--moment"), _one_of(victim, VICTIMS, "--victim")
        raise typer.Exit(run_matrix(lanes, at, who, mode))
    raise typer.Exit(run_rounds(rounds, seed, lanes, _one_of(kind, KINDS, "--kind"), mode))


def _one_of(said: str, known: Sequence[Name], option: str) -> Name | None:
    """What was said as one of the known names; None when nothing was."""
    found = next((name for name in known if name == said), None)
    if said and found is None:
        raise typer.BadParameter(f"say one of {', '.join(known)}", param_hint=option)
    return found


@app.command()
def simulate(
    seeds: Annotated[int, typer.Option(help="How many runs.")] = 1000,
    first: Annotated[int, typer.Option(help="The first run's seed; a violation names its own.")] = 0,
    workers: Annotated[int, typer.Option(help="How many processes run them.")] = 2,
) -> None:
    """Simulate commits over storage that fails and hosts that die, without Spark."""
    from headrace.testing.simulation import run_many

    raise typer.Exit(run_many(seeds, first, workers))


@app.command()
def recover(
    checkpoint: Annotated[str, typer.Argument(help="The query's checkpoint location.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without, only say what would be done.")
    ] = False,
    local: Annotated[
        Path | None, typer.Option(help="The hosts' local directory, where it was set.")
    ] = None,
) -> None:
    """Bring a checkpoint and its state together again after a machine was lost."""
    from headrace.cli.recover import recover as repair

    raise typer.Exit(repair(checkpoint, local, yes, typer.echo))


if __name__ == "__main__":
    app()
