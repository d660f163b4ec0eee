"""`headrace savepoint`: names for versions of a query, from which new queries start.

Modules that read state are imported by the commands, so that `--help` is quick.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headrace.cli.tables import AsJson, failing, print_rows

app = typer.Typer(no_args_is_help=True, help="Keep a version of a query, to start new queries from it.")

Checkpoint = Annotated[str, typer.Argument(help="The query's checkpoint location.")]
Place = Annotated[str, typer.Argument(help="A checkpoint, or the state location if that is gone.")]
_LISTED = ["name", "batch", "operators", "made", "complete", "query"]


@app.command()
def create(
    checkpoint: Checkpoint,
    name: Annotated[str | None, typer.Argument(help="Its name; batch-<number> by default.")] = None,
    wait: Annotated[
        float, typer.Option(help="The longest wait for the state of the batch, in seconds.")
    ] = 60,
    as_json: AsJson = False,
) -> None:
    """Keep the last committed batch of a query, which may run."""
    from headrace.edit.savepoints import create as make

    with failing():
        savepoint = make(checkpoint, name, wait)
    if as_json:
        row = {"name": savepoint.name, "batch": savepoint.batch, "query": savepoint.query}
        typer.echo(json.dumps({**row, "location": savepoint.location}))
        return
    typer.echo(
        f"{savepoint.name} is batch {savepoint.batch} of query {savepoint.query}; start from it with"
    )
    typer.echo(f'  hr.start(writer, from_savepoint="{checkpoint}#{savepoint.name}")')


@app.command("list")
def list_savepoints(place: Place, as_json: AsJson = False) -> None:
    """List the savepoints of a query, or of all queries of a state location."""
    from headrace.edit.saved import listed

    with failing():
        print_rows(listed(place), as_json, _LISTED)


@app.command()
def delete(
    place: Place,
    name: Annotated[str, typer.Argument(help="Its name, or <query>/<name>.")],
    as_json: AsJson = False,
) -> None:
    """Delete a savepoint; files that nothing else names go with the next collection."""
    from headrace.edit.saved import remove

    with failing():
        remove(place, name)
    typer.echo(json.dumps({"deleted": name}) if as_json else f"deleted {name}")
