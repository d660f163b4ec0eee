"""Savepoints: a name for one version of every operator of a query, with Spark's part of its checkpoint.

    savepoints/<query>/<name>/record       what the savepoint has; put first
    savepoints/<query>/<name>/complete     put last, when its pins count

A savepoint without `complete` is unfinished: it can be listed and deleted, and starts nothing. Deleting
takes the same steps backwards.
Threads: any, on any number of machines; the record is put if absent, so a name has one maker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.checkpoint.keep.dropped import finish_dropped
from headrace.checkpoint.keep.hold import hold, release
from headrace.checkpoint.keep.pins import named_files
from headrace.checkpoint.records import OperatorRecord
from headrace.checkpoint.rescale.frozen import Parent, parents_from, rows_of
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import BlobMissing, QueryError, TryAgain
from headrace.format.names import SAVEPOINTS, query_of, savepoint_folder
from headrace.format.record import corrupt, decode_record, encode_record

FORMAT_VERSION = 1
_KIND = "savepoint"
_RECORD = re.compile(r"savepoints/([^/]+)/([^/]+)/record")
_COMPLETE = re.compile(r"savepoints/([^/]+)/([^/]+)/complete")


@dataclass(frozen=True)
class SavedOperator:
    """One operator at a savepoint; without a version it had no rows by then."""

    record: OperatorRecord
    version: int | None = None
    parents: tuple[Parent, ...] = ()  # the manifests of the version
    origins: tuple[str, ...] = ()  # the operators' folders whose files they name

    def body(self) -> dict[str, Any]:
        return {
            "record": self.record.body(""),
            "version": self.version,
            "parents": rows_of(self.parents),
            "origins": list(self.origins),
        }

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> SavedOperator:
        record = OperatorRecord.of(body["record"], "")
        return cls(record, body["version"], tuple(parents_from(body["parents"])), tuple(body["origins"]))


@dataclass(frozen=True)
class Savepoint:
    """One savepoint; `files` are Spark's files of the checkpoint by name, in the order of writing."""

    name: str
    query: str
    checkpoint: str
    batch: int
    owner: str  # of its pins
    made_ms: int
    operators: tuple[SavedOperator, ...]
    files: tuple[tuple[str, str], ...]

    @property
    def location(self) -> str:
        return self.operators[0].record.location

    @property
    def folder(self) -> str:
        return savepoint_folder(self.query, self.name)

    def encoded(self) -> bytes:
        body = {
            name: getattr(self, name)
            for name in ("name", "query", "checkpoint", "batch", "owner", "made_ms")
        }
        body["operators"] = [one.body() for one in self.operators]
        return encode_record(_KIND, FORMAT_VERSION, {**body, "files": [list(pair) for pair in self.files]})

    @classmethod
    def decoded(cls, data: bytes, where: str) -> Savepoint:
        body = decode_record(_KIND, FORMAT_VERSION, data, where)
        try:
            operators = tuple(SavedOperator.of(one) for one in body.pop("operators"))
            files = tuple((str(name), str(text)) for name, text in body.pop("files"))
            return cls(**body, operators=operators, files=files)
        except (KeyError, TypeError, ValueError) as error:
            raise corrupt(_KIND, where, f"its fields are not those of a savepoint ({error})") from error


def make(blobs: Blobs, savepoint: Savepoint) -> bool:
    """Puts a savepoint and its pins; False, with nothing left, where a collector was faster."""
    name, data = f"{savepoint.folder}record", savepoint.encoded()
    if put_or_read(blobs, name, data, clock=SYSTEM_CLOCK, retry=Retry()) != data:
        raise name_in_use(blobs, savepoint.query, savepoint.name)
    for one in savepoint.operators:
        if not _holds(blobs, savepoint.owner, one):
            delete(blobs, savepoint)
            return False
    done = encode_record(_KIND, FORMAT_VERSION, {"owner": savepoint.owner})
    put_or_read(blobs, f"{savepoint.folder}complete", done, clock=SYSTEM_CLOCK, retry=Retry())
    if not blobs.list(name):
        delete(blobs, savepoint)
        raise TryAgain(f"the savepoint {savepoint.name} was deleted while it was made")
    return True


def delete(blobs: Blobs, savepoint: Savepoint) -> None:
    """Removes a savepoint; files that only it named go now if their query was dropped, else soon.

    The second round is for a maker that was under way: without the record it removes what it puts later.
    """
    _delete_parts(blobs, savepoint)
    blobs.delete(f"{savepoint.folder}record")
    _delete_parts(blobs, savepoint)


def _delete_parts(blobs: Blobs, savepoint: Savepoint) -> None:
    blobs.delete(f"{savepoint.folder}complete")
    origins = sorted({folder for one in savepoint.operators for folder in one.origins})
    release(blobs, savepoint.owner, origins)
    for query in sorted({query_of(folder) for folder in origins}):
        finish_dropped(blobs, query)


def names_of(blobs: Blobs, query: str | None = None) -> dict[tuple[str, str], bool]:
    """Whether each savepoint of a query, or of a whole location, is complete; by query and name."""
    listed = blobs.list(SAVEPOINTS if query is None else savepoint_folder(query, "x").rpartition("x")[0])
    made = [match.groups() for name in listed if (match := _RECORD.fullmatch(name))]
    done = {match.groups() for name in listed if (match := _COMPLETE.fullmatch(name))}
    return {(unquote(at), unquote(name)): (at, name) in done for at, name in made}


def read(blobs: Blobs, query: str, name: str) -> Savepoint:
    """A savepoint, complete or not; raises where there is none of this name."""
    where = f"{savepoint_folder(query, name)}record"
    with suppress(BlobMissing):
        return Savepoint.decoded(blobs.get(where), f"{blobs.root}/{where}")
    known = ", ".join(sorted(one for _, one in names_of(blobs, query))) or "none"
    raise QueryError(
        f"query {query} has no savepoint {name} in {blobs.root}", hint=f"its savepoints are {known}"
    )


def name_in_use(blobs: Blobs, query: str, name: str) -> QueryError:
    """The error for a name that is in use."""
    unfinished = names_of(blobs, query).get((query, name)) is False
    return QueryError(
        f"query {query} has a savepoint {name} already{', which is unfinished' if unfinished else ''}",
        hint="choose another name, or delete that one with `headrace savepoint delete`",
    )


def _holds(blobs: Blobs, owner: str, one: SavedOperator) -> bool:
    try:
        files = named_files(blobs, [parent.manifest for parent in one.parents])
    except BlobMissing:
        return False
    return hold(blobs, owner, files)
