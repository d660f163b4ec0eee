"""Savepoints of a query, by its checkpoint. The query may run; no host and no Spark takes part.

A savepoint names the last batch that Spark has committed. If its state is not on shared storage yet, as
with asynchronous commits, the call waits for it (ack 2). If versions are collected meanwhile, a newer batch
is saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.checkpoint.keep.pins import named_files
from headrace.checkpoint.keep.savepoint import SavedOperator, Savepoint, make, name_in_use, names_of
from headrace.checkpoint.records import OperatorRecord, default_location
from headrace.checkpoint.rescale.folders import folders_at
from headrace.checkpoint.rescale.frozen import Parent, read_frozen
from headrace.clock import SYSTEM_CLOCK, Clock, Deadline
from headrace.edit.plan import refuse_spark_state
from headrace.errors import BlobMissing, QueryError, TryAgain
from headrace.inspect.checkpoint import COMMITS, OFFSETS, Checkpoint
from headrace.inspect.state import State
from headrace.inspect.versions import published
from headrace.plan.epochs import base_of
from headrace.plan.ids import new_write_id
from headrace.plan.partitions.layouts import layout_at
from headrace.plan.times import TIMES
from headrace.recovery.reconcile import REPLAY

WAIT_S = 60.0
SOURCES, STATE = "sources", "state"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


def create(
    checkpoint: str | Path, name: str | None = None, within_s: float = WAIT_S, clock: Clock = SYSTEM_CLOCK
) -> Savepoint:
    """Makes a savepoint of the last committed batch; named after the batch if no name is given."""
    with State(checkpoint) as state:
        location = refuse_query(state)
        blobs, deadline = state.open_location(location, create=False), Deadline(within_s * 1000, clock)
        while True:
            savepoint = _captured(state, blobs, name, deadline, clock)
            if make(blobs, savepoint):
                return savepoint
            _wait(state, deadline, clock, "its versions are collected faster than they can be pinned")


def refuse_query(state: State) -> str:
    """The state location of a query that can have savepoints; raises where it cannot."""
    records, root = state.checkpoint.records(), state.checkpoint.files.root
    if not records:
        raise QueryError(
            f"the query at {root} has no operator of Headrace",
            hint="a savepoint is of Headrace's state: name the checkpoint of a query that has some",
        )
    refuse_spark_state(state.checkpoint)
    for record in records.values():
        _refuse_operator(record, root)
    locations = sorted({record.location for record in records.values()})
    if len(locations) > 1:
        raise QueryError(
            f"the query at {root} has its state in {' and '.join(locations)}",
            hint="bring the state of all operators to one location first",
        )
    return locations[0]


def _refuse_operator(record: OperatorRecord, root: str) -> None:
    name, location = record.spec.name, record.location
    if location == default_location(root) or location.startswith(f"{root}/"):
        raise QueryError(
            f"the state of operator {name} is inside of the checkpoint {root}, and goes with it",
            hint=f"stop the query, move {location} to another folder, set spark.headrace.state.location to "
            "that one, start the query again, and make the savepoint then",
        )
    if record.spec.store == "rocksdb":
        raise QueryError(
            f"operator {name} is in the rocksdb store, whose files cannot be shared",
            hint="`headrace state branch` copies the state of a query instead",
        )


def _captured(state: State, blobs: Blobs, name: str | None, deadline: Deadline, clock: Clock) -> Savepoint:
    checkpoint = state.checkpoint
    while True:
        batch, records = _committed(checkpoint), checkpoint.records()
        chosen = checked_name(name or f"batch-{batch}")
        if (state.query, chosen) in names_of(blobs, state.query):
            raise name_in_use(blobs, state.query, chosen)
        files = _spark_files(checkpoint, batch)
        try:
            operators = [_saved(state, blobs, one, batch, deadline, clock) for one in records.values()]
            break
        except BlobMissing:  # a collector was ahead: the query has gone on
            _wait(state, deadline, clock, "its versions are collected faster than they can be read")
    owner, made_ms = f"savepoint-{new_write_id()}", int(clock.now_ms())
    return Savepoint(
        chosen, state.query, checkpoint.files.root, batch, owner, made_ms, tuple(operators), tuple(files)
    )


def checked_name(name: str) -> str:
    """The name of a savepoint, if it can be one."""
    if _NAME.fullmatch(name):
        return name
    raise QueryError(
        f"{name!r} is no name of a savepoint", hint="use letters, digits, dots, underscores and hyphens"
    )


def _committed(checkpoint: Checkpoint) -> int:
    if checkpoint.files.read(REPLAY) is not None:
        raise QueryError(
            f"the last batch of the query at {checkpoint.files.root} is to be replayed for its state",
            hint="start the query once with hr.start, and make the savepoint then",
        )
    if checkpoint.committed is None:
        raise QueryError(
            f"the query at {checkpoint.files.root} has committed no batch yet",
            hint="make a savepoint after its first batch",
        )
    return checkpoint.committed


def _saved(
    state: State, blobs: Blobs, record: OperatorRecord, batch: int, deadline: Deadline, clock: Clock
) -> SavedOperator:
    """An operator at a batch; waits until all of its partitions are published."""
    version = base_of(record.begun, batch + 1)
    if version is None:
        return SavedOperator(record)
    while not (parents := _parents(state, blobs, record, version)):
        _wait(
            state,
            deadline,
            clock,
            f"version {version} of operator {record.spec.name} is not on shared storage in all partitions",
        )
    origins = named_files(blobs, [parent.manifest for parent in parents])
    return SavedOperator(record, version, tuple(parents), tuple(sorted(origins)))


def _parents(state: State, blobs: Blobs, record: OperatorRecord, version: int) -> list[Parent]:
    """The manifests of a version; empty while a partition has not published it."""
    layouts, name = record.known_layouts, record.spec.name
    if layout_at(layouts, version) is None:  # a branch that has not run yet
        return read_frozen(blobs, layouts[0].parents)
    manifests = published(blobs, state.query, name, layouts).get(version, [])
    folders = folders_at(state.query, name, layouts, version)
    return [Parent(one, folder.groups) for one, folder in zip(manifests, folders, strict=False)]


def _spark_files(checkpoint: Checkpoint, batch: int) -> Iterator[tuple[str, str]]:
    """Spark's files up to a batch, in the order in which a branch writes them.

    Logs of sources may be of later batches: a source takes what its log has beyond the offsets for new.
    """
    files = checkpoint.files
    names = [
        *(f"{STATE}/{node}/_metadata/metadata" for node in files.list(STATE)),
        *(f"{SOURCES}/{at}/{name}" for at in files.list(SOURCES) for name in files.list(f"{SOURCES}/{at}")),
        *(
            f"{folder}/{at}"
            for folder in (OFFSETS, COMMITS)
            for at in checkpoint.batches(folder)
            if at <= batch
        ),
    ]
    for name in names:
        text = files.read(name)
        if text is not None:  # Spark drops old entries
            yield name, text


def _wait(state: State, deadline: Deadline, clock: Clock, problem: str) -> None:
    if deadline.is_over:
        raise TryAgain(
            f"no savepoint of the query at {state.checkpoint.files.root} was made: {problem}",
            hint="if the query runs, try again with a longer --wait; if not, start it once with "
            "hr.start(writer), or run `headrace recover <checkpoint>` on the machine that has its log",
        )
    clock.sleep_ms(TIMES.gap_look_s * 1000)
