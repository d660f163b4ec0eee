"""A branch: the checkpoint of a new query that goes on from a savepoint.

    headrace-branch ─▶ state of the branch ─▶ operator records ─▶ Spark's files ─▶ metadata

`headrace-branch` has the branch's query id and where it comes from. `metadata` makes the checkpoint count.
A call that broke off before is repeated with the same id, and every file is put only where there is none.
An operator record comes before Spark's logs: by it a plain start of an unfinished branch is refused.
Threads: one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.locations import is_object_store
from headrace.checkpoint.beside.record_log import RecordLog
from headrace.checkpoint.keep.branch import begin_state, branch_record
from headrace.checkpoint.keep.savepoint import Savepoint, names_of, read
from headrace.checkpoint.records import ReadFiles, SmallFiles
from headrace.errors import QueryError, StateMissing
from headrace.format.names import component
from headrace.format.record import decode_record, encode_record
from headrace.inspect.checkpoint import METADATA, Checkpoint, FolderFiles, ObjectFiles

MARKER = "headrace-branch"
FORMAT_VERSION = 1
_KIND = "branch"
OpenAt = Callable[[str], Blobs]


@dataclass(frozen=True)
class Branch:
    """The query id of a branch, and the savepoint that it comes from: as written, and by its owner."""

    query: str
    address: str
    owner: str


def resolve(address: str, open_at: OpenAt) -> tuple[Blobs, Savepoint]:
    """The savepoint at `<checkpoint>#<name>`, `<state location>#<name>` or `…#<query>/<name>`."""
    place, hash_mark, written = address.rpartition("#")
    if not hash_mark or not place or not written:
        raise QueryError(
            f"from_savepoint={address!r} names no savepoint",
            hint='write "<checkpoint>#<name>", or "<state location>#<name>" where the checkpoint is gone',
        )
    blobs, query = opened(place, open_at)
    at, _, name = written.rpartition("/")
    query = at or query
    if query is None:
        queries = sorted(query for query, one in names_of(blobs) if one == name)
        if len(queries) > 1:
            raise QueryError(
                f"{len(queries)} queries in {blobs.root} have a savepoint {name}",
                hint=f"write one of {', '.join(f'{place}#{query}/{name}' for query in queries)}",
            )
        query = queries[0] if queries else "any"
    savepoint = read(blobs, query, name)
    if not names_of(blobs, query).get((query, name)):
        raise StateMissing(
            f"the savepoint {name} of query {query} is unfinished: its making broke off",
            hint=f"delete it with `headrace savepoint delete {place} {name}`, and make another one",
        )
    return blobs, savepoint


def opened(place: str, open_at: OpenAt) -> tuple[Blobs, str | None]:
    """The blobs of a checkpoint's state and its query's id, or those of a state location and None."""
    checkpoint = _checkpoint(place, open_at)
    if checkpoint is None:
        return open_at(place.removeprefix("file://").removeprefix("file:")), None
    locations = {record.location for record in checkpoint.records().values()}
    if not locations:
        raise QueryError(
            f"the query at {place} has no operator of Headrace", hint="name the checkpoint of another query"
        )
    return open_at(min(locations)), checkpoint.query


def _checkpoint(place: str, open_at: OpenAt) -> Checkpoint | None:
    written = place.replace("s3a://", "s3://", 1)
    files: ReadFiles
    if is_object_store(written):
        files = ObjectFiles(open_at(written))
    else:
        files = FolderFiles(str(Path(written.removeprefix("file://").removeprefix("file:")).absolute()))
    return None if files.read(METADATA) is None else Checkpoint(files)


def begun_from(files: ReadFiles, address: str) -> bool:
    """Whether the checkpoint is a whole branch that was begun with this very address."""
    branch = _marker(files)
    return branch is not None and branch.address == address and files.read(METADATA) is not None


def begin_branch(files: SmallFiles, blobs: Blobs, savepoint: Savepoint, address: str) -> str:
    """Makes the checkpoint of a branch, unless it is one of this savepoint; returns its query id."""
    branch = _marker(files)
    if branch is None:
        _refuse_used(files)
        files.put(MARKER, _encoded(Branch(str(uuid.uuid4()), address, savepoint.owner)))
        branch = _marker(files)
    if branch is None or branch.owner != savepoint.owner:
        raise _is_another(files)
    if files.read(METADATA) is not None:
        return branch.query
    begin_state(blobs, savepoint, branch.query)
    for one in savepoint.operators:
        records = RecordLog(files, one.record.spec.name)
        if records.record is None:
            records.put(branch_record(one, branch.query), f"branch of {component(savepoint.query)}")
    for name, text in (*savepoint.files, (METADATA, json.dumps({"id": branch.query}))):
        if not files.put(name, text) and files.read(name) != text:
            raise _is_another(files)
    return branch.query


def _refuse_used(files: ReadFiles) -> None:
    if any(files.list(folder) for folder in ("offsets", "commits")) or files.read(METADATA) is not None:
        raise _is_another(files)


def _is_another(files: ReadFiles) -> QueryError:
    return QueryError(
        f"the checkpoint {files.root} is that of another query",
        hint="give the new query a checkpointLocation of its own; leave from_savepoint out to go on with "
        "the query that is there",
    )


def _encoded(branch: Branch) -> str:
    body = {"query": branch.query, "address": branch.address, "owner": branch.owner}
    return encode_record(_KIND, FORMAT_VERSION, body).decode()


def _marker(files: ReadFiles) -> Branch | None:
    text = files.read(MARKER)
    if text is None:
        return None
    where = f"{files.root}/{MARKER}"
    return Branch(**decode_record(_KIND, FORMAT_VERSION, text.encode("utf-8", "surrogateescape"), where))
