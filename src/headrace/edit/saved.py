"""The savepoints that there are, by a checkpoint or by a state location; deleting one of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.keep.savepoint import Savepoint, delete, names_of, read
from headrace.edit.drop import drop, drop_at
from headrace.edit.from_savepoint import opened
from headrace.errors import QueryError


def listed(place: str) -> list[dict[str, Any]]:
    """The savepoints of a checkpoint's query, or of all queries of a state location, oldest first."""
    with _opened(place) as (blobs, query):
        names = names_of(blobs, query).items()
        rows = [_row(read(blobs, at, name), is_complete) for (at, name), is_complete in names]
    return sorted(rows, key=lambda row: (row["made"], row["name"]))


def remove(place: str, name: str) -> None:
    """Deletes a savepoint, complete or not; `name` may be `<query>/<name>`."""
    with _opened(place) as (blobs, query):
        at, _, name = name.rpartition("/")
        queries = [at or query] if at or query else [one for one, of in names_of(blobs) if of == name]
        if len(queries) != 1:
            raise QueryError(
                f"{len(queries)} queries in {blobs.root} have a savepoint {name}",
                hint="name it as <query>/<name>; `headrace savepoint list` has both",
            )
        delete(blobs, read(blobs, str(queries[0]), name))


def drop_state(place: str) -> bool:
    """Drops the state at a checkpoint, or at `<state location>#<query>`; whether all of it is gone."""
    location, _, query = place.rpartition("#")
    if not location:
        return drop(place)
    with _opened(location) as (blobs, _):
        return drop_at(blobs, query)


def _row(savepoint: Savepoint, is_complete: bool) -> dict[str, Any]:
    return {
        "name": savepoint.name,
        "batch": savepoint.batch,
        "operators": [one.record.spec.name for one in savepoint.operators],
        "made": datetime.fromtimestamp(savepoint.made_ms / 1000, UTC).isoformat(timespec="seconds"),
        "complete": is_complete,
        "query": savepoint.query,
        "checkpoint": savepoint.checkpoint,
    }


@contextmanager
def _opened(place: str) -> Iterator[tuple[Blobs, str | None]]:
    with tempfile.TemporaryDirectory(prefix="headrace-savepoints-") as scratch:
        locations = Locations(Path(scratch))
        yield opened(place, lambda location: locations.open(location, create=False))
