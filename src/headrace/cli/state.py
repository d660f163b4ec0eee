"""`headrace state`: what there is of a query's state, in a terminal or as JSON.

Modules that read state are imported by the commands, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.tables import AsJson, as_text, fail, print_rows
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import HeadraceError, QueryError

if TYPE_CHECKING:
    from headrace.inspect.changes import Changes
    from headrace.inspect.state import State
    from headrace.inspect.table import StateTable

app = typer.Typer(no_args_is_help=True, help="Look at the state of a query, by its checkpoint.")

Checkpoint = Annotated[str, typer.Argument(help="The query's checkpoint location.")]
Operator = Annotated[str, typer.Argument(help="The operator's name.")]
Version = Annotated[int | None, typer.Option(help="Read the state after this batch; newest by default.")]
Key = Annotated[list[str] | None, typer.Option(help="Only rows of a key, as column=value; repeatable.")]
_LISTED = ["operator", "work", "window", "store", "version", "age", "rows", "bytes", "files"]
_VERSIONS = ["version", "age", "closed through", "rows", "bytes", "files", "late_rows"]
Limit = Annotated[int, typer.Option(help="The most rows to show; 0 for all.")]


@app.command("ls")
def list_operators(
    checkpoint: Checkpoint,
    operator: Annotated[str | None, typer.Argument(help="List the versions of one operator.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the operators of a checkpoint, or the versions of one."""
    from headrace.inspect.describe import operator_rows, version_rows

    with _opened(checkpoint) as state:
        if operator is None:
            print_rows(_readable(operator_rows(state), as_json), as_json, _LISTED)
        else:
            print_rows(_readable(version_rows(state, operator), as_json), as_json, _VERSIONS)


@app.command()
def show(
    checkpoint: Checkpoint,
    operator: Operator,
    version: Version = None,
    key: Key = None,
    limit: Limit = 20,
    accumulators: Annotated[bool, typer.Option(help="Parts of accumulators, not results.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the rows of an operator's state."""
    with _opened(checkpoint) as state:
        keys = _keys(state, operator, key or [])
        table = state.table(operator, version=version, keys=keys, accumulators=accumulators)
        print_rows(list(_rows(table, limit)), as_json, table.schema.names)


@app.command()
def diff(
    checkpoint: Checkpoint,
    operator: Operator,
    start: Annotated[int, typer.Argument(help="The older version.")],
    end: Annotated[int | None, typer.Argument(help="The newer version; newest by default.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two versions."""
    with _opened(checkpoint) as state:
        changes = state.changes(operator, start, end)
        print_rows(list(_rows(changes, limit)), as_json, changes.schema.names)


@app.command()
def export(
    checkpoint: Checkpoint,
    operator: Operator,
    out: Annotated[Path, typer.Argument(help="A new Parquet file.")],
    version: Version = None,
    accumulators: Annotated[bool, typer.Option(help="Parts of accumulators, to be written back.")] = False,
) -> None:
    """Write an operator's state to a Parquet file, in bounded memory."""
    import pyarrow.parquet as pq

    with _opened(checkpoint) as state:
        table = state.table(operator, version=version, accumulators=accumulators)
        if out.exists():
            raise QueryError(f"{out} is there already", hint="name a new file, or remove that one")
        rows = 0
        with pq.ParquetWriter(out, table.schema) as writer:
            for batch in table.to_batches():
                writer.write_batch(batch)
                rows += batch.num_rows
        typer.echo(f"wrote {rows:,} rows of version {table.version} to {out}")


@app.command()
def branch(
    checkpoint: Checkpoint,
    to: Annotated[str, typer.Argument(help="The branch's checkpoint location: a new folder.")],
) -> None:
    """Make a query of its own that goes on from a checkpoint, with a copy of the state."""
    from headrace.edit.branch import branch as make

    with _opened(checkpoint):
        query = make(checkpoint, to)
    typer.echo(f"{to} is the checkpoint of the new query {query}")


@app.command()
def drop(
    place: Annotated[str, typer.Argument(help="The checkpoint, or <state location>#<query id>.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; without it, only print what would go.")
    ] = False,
) -> None:
    """Delete the state of a query that is no longer needed; savepoints and branches keep theirs."""
    from headrace.cli.tables import failing
    from headrace.edit.saved import drop_state

    if not yes:
        typer.echo(f"with --yes this would delete the state of {place}, apart from what others name")
        return
    with failing():
        is_gone = drop_state(place)
    typer.echo(
        "its state is gone" if is_gone else "savepoints or branches name some files: these go with them"
    )


@app.command()
def stats(checkpoint: Checkpoint, operator: Operator, as_json: AsJson = False) -> None:
    """Show sizes by partition, the largest keys, and what the next collection may delete."""
    from rich.console import Console

    from headrace.inspect.describe import statistics

    with _opened(checkpoint) as state:
        figures = statistics(state, operator)
    if as_json:
        typer.echo(as_text(figures))
        return
    console = Console()
    console.print(
        f"{operator}: version {figures['version']}, {figures['rows']:,} rows, {figures['bytes']:,} bytes, "
        f"{figures['files']} files, {figures['late_rows']:,} late rows, {age_of(figures['at'])} old"
    )
    print_rows(figures["partitions"], as_json=False)
    if figures["largest_keys"]:
        console.print("keys with most rows")
        print_rows(figures["largest_keys"], as_json=False)
    doomed = figures["collectable"]
    console.print(f"the next collection may delete {doomed['files']} files, {doomed['bytes']:,} bytes")


class _opened:  # noqa: N801 (a context manager that reads as a verb)
    """The state of a checkpoint; an error is printed with its hint and ends the command."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint

    def __enter__(self) -> State:
        from headrace.inspect.state import State

        try:
            self._state = State(self._checkpoint)
        except HeadraceError as error:
            fail(error)
        return self._state

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._state.close()
        if isinstance(error, HeadraceError):
            fail(error)


def _readable(rows: list[dict[str, Any]], as_json: bool) -> list[dict[str, Any]]:
    """For people: rows with their age, and with the watermark as a time."""
    if as_json:
        return rows
    return [row | {"age": age_of(row.get("at")), "closed through": _instant(row)} for row in rows]


def age_of(at: datetime | None) -> str:
    """How long ago a version's batch was planned."""
    from headrace.monitor.picture.words import span

    return "?" if at is None else span(max(0.0, SYSTEM_CLOCK.now_ms() / 1000 - at.timestamp()))


def _instant(row: dict[str, Any]) -> str:
    through_us = row.get("closed_through_us")
    if through_us is None:
        return ""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=through_us)).strftime(
        "%Y-%m-%d %H:%M:%S"
    )


def _rows(table: StateTable | Changes, limit: int) -> Iterator[dict[str, Any]]:
    rows = (row for batch in table.to_batches() for row in batch.to_pylist())
    return islice(rows, limit) if limit else rows


def _keys(state: State, operator: str, given: list[str]) -> dict[str, Any]:
    """`column=value` as values of the key's type."""
    import pyarrow as pa

    from headrace.plan.types import arrow_type

    types = {field.label or field.name: field.type for field in state.record(operator).spec.keys}
    filters: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise QueryError(f"--key {one}: no value is given", hint="write --key column=value")
        kind = types.get(name)
        try:
            cast = value if kind is None else pa.scalar(value).cast(arrow_type(kind)).as_py()
        except pa.ArrowInvalid as error:
            raise QueryError(f"--key {one}: {error}", hint=f"{name} is {kind}") from None
        filters.setdefault(name, []).append(cast)
    return filters
