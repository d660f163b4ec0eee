"""A branch of a query: a new checkpoint with a query id and state of its own, at the same batch.

    checkpoint under a hidden name ─▶ state under the new id ─▶ the checkpoint's name

The name makes the branch count: one that breaks off before leaves files that no query uses. The original is
only read. It may run: batches that it commits meanwhile are not part of the branch.
"""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.cached import download
from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.beside.record_log import RecordLog
from headrace.checkpoint.records import STATE, OperatorRecord, default_location
from headrace.edit.plan import refuse_remote
from headrace.errors import BlobMissing, QueryError
from headrace.format.names import component, operator_prefix, runs_folder
from headrace.inspect.checkpoint import METADATA, FolderFiles
from headrace.inspect.state import State
from headrace.inspect.versions import read_manifests

_NOT_COPIED = ("writes/", "owner-", "pins/", "condemned/")  # the last two are about files of the original


def branch(checkpoint: str, to: str) -> str:
    """Makes a branch of the query of a checkpoint at `to`; returns the branch's query id."""
    target = Path(to.removeprefix("file://").removeprefix("file:")).absolute()
    with State(checkpoint) as state:
        refuse_remote(state.checkpoint)
        _refuse_shared(state)
        if target.exists():
            raise QueryError(f"{target} is there already", hint="name a folder that does not exist")
        query, hidden = str(uuid.uuid4()), target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            _copy_checkpoint(state, hidden, query)
            for record in state.checkpoint.records().values():
                _copy_operator(state, record, hidden, query)
            hidden.rename(target)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
    return query


def _refuse_shared(state: State) -> None:
    """A copy would go on naming files of other folders, and nothing would keep them."""
    for operator, record in state.checkpoint.records().items():
        manifests = sorted({name for names in state.published(operator).values() for name in names})
        shared = any(
            not segment.name.startswith("segments/")
            for manifest in read_manifests(state.blobs(operator), manifests)
            for segment in manifest.segments
        )
        if shared or record.known_layouts[0].parents:
            raise QueryError(
                f"the state of operator {operator} shares files, since it was rescaled or is a branch",
                hint="start the new query from a savepoint instead: `headrace savepoint create`; or let "
                "the query run on until compaction has written files of its own",
            )


def _copy_checkpoint(state: State, hidden: Path, query: str) -> None:
    """Copies the files of Spark and the operators' records; the state follows apart."""
    files = state.checkpoint.files
    assert isinstance(files, FolderFiles)
    shutil.copytree(files.root, hidden, ignore=shutil.ignore_patterns(STATE, "*.tmp", f".{METADATA}.crc"))
    (hidden / METADATA).write_text(json.dumps({"id": query}))


def _copy_operator(state: State, record: OperatorRecord, hidden: Path, query: str) -> None:
    inside = record.location == default_location(state.checkpoint.files.root)
    location = str(hidden / STATE) if inside else record.location
    name, source = record.spec.name, state.open_location(record.location, create=False)
    to = state.open_location(location, create=True)
    for old, new in (
        (f"{operator_prefix(state.query, name)}/", f"{operator_prefix(query, name)}/"),
        (runs_folder(state.query), runs_folder(query)),
    ):
        for blob in source.list(old):
            rest = blob.removeprefix(old)
            if not rest.startswith(_NOT_COPIED):
                _copy_blob(source, blob, to, f"{new}{rest}")
    records = RecordLog(LocalFiles(f"file:{hidden}"), name)
    records.put(replace(record, location=location), f"branch of {component(state.query)}")


def _copy_blob(source: Blobs, name: str, to: Blobs, copied: str) -> None:
    if copied in to.list(copied):  # the runs are the same for all operators
        return
    staged = to.staging(copied)
    try:
        path = source.local_path(name)
        if path is None:
            download(source, name, staged)
        else:
            shutil.copyfile(path, staged)
        to.put_file(copied, staged)
    except (BlobMissing, FileNotFoundError):  # the original has collected it meanwhile
        staged.unlink(missing_ok=True)
