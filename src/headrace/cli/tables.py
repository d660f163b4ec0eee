"""What commands print: rows as a table or as JSON, and errors with their hint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from headrace.errors import HeadraceError

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line, for machines.")]


@contextmanager
def failing() -> Iterator[None]:
    """Prints an error with its hint, and ends the command."""
    try:
        yield
    except HeadraceError as error:
        fail(error)


def fail(error: HeadraceError) -> NoReturn:
    typer.echo(str(error), err=True)
    raise typer.Exit(1)


def print_rows(rows: list[dict[str, Any]], as_json: bool, names: list[str] | None = None) -> None:
    if as_json:
        for row in rows:
            typer.echo(as_text(row))
        return
    from rich.console import Console
    from rich.table import Table

    columns = names or (list(rows[0]) if rows else [])
    table = Table(*columns)
    for row in rows:
        table.add_row(*(_text(row.get(name)) for name in columns))
    Console().print(table if columns else "nothing")


def as_text(value: dict[str, Any]) -> str:
    return json.dumps(value, default=str)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} {_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)
