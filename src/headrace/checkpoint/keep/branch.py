"""The state of a branch: its first version names files of its original, and pins them until it needs none.

    <branch>/runs/<run>                     after the runs of the original
    <branch>/<operator>/operator.json
    <branch>/<operator>/layouts/branch      the manifests that it begins from
    <original>/<operator>/pins/<branch>     beside one pin for each operator whose files they name

Nothing is copied. The record `layouts/branch` is put before the pins, so that a branch that breaks off can
be dropped with all its pins.
Threads: any, on any number of machines.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.blob.base import Blobs
from headrace.checkpoint.keep.dropped import ORIGIN, release_origins
from headrace.checkpoint.keep.hold import hold, release
from headrace.checkpoint.keep.pins import named_files
from headrace.checkpoint.keep.savepoint import SavedOperator, Savepoint
from headrace.checkpoint.operator_record import ensure_operator
from headrace.checkpoint.records import OperatorRecord
from headrace.checkpoint.rescale.frozen import put_frozen
from headrace.checkpoint.runs import begin_runs
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import BlobMissing, StateMissing
from headrace.format.names import operator_prefix, parse_manifest
from headrace.plan.partitions.layouts import Layout


def begin_state(blobs: Blobs, savepoint: Savepoint, query: str) -> None:
    """Makes the state of a branch; a call that broke off may be repeated."""
    attempts = [parse_manifest(parent.manifest) for one in savepoint.operators for parent in one.parents]
    begin_runs(blobs, query, max((a.run for a in attempts if a), default=0), f"branch of {savepoint.query}")
    for one in savepoint.operators:
        ensure_operator(blobs, query, one.record.spec)
        if one.parents:
            _begin_operator(blobs, savepoint, one, operator_prefix(query, one.record.spec.name))


def branch_record(one: SavedOperator, query: str) -> OperatorRecord:
    """The record of an operator in the checkpoint of a branch."""
    if one.version is None:
        return OperatorRecord(one.record.location, one.record.spec, ())
    origin = f"{operator_prefix(query, one.record.spec.name)}/{ORIGIN}"
    layout = Layout(one.version + 1, len(one.parents), by_range=True, parents=origin)
    begun = tuple(number for number in one.record.begun if number <= one.version)
    return OperatorRecord(one.record.location, one.record.spec, begun, (layout,))


def release_branch(blobs: Blobs, prefix: str, names: Collection[str], needed: Collection[str]) -> None:
    """Removes a branch's pins on its original once its versions name only files of its own."""
    origin = f"{prefix}/{ORIGIN}"
    if origin not in names or any(not name.startswith(f"{prefix}/") for name in needed):
        return
    release_origins(blobs, prefix)


def _begin_operator(blobs: Blobs, savepoint: Savepoint, one: SavedOperator, prefix: str) -> None:
    origin = f"{prefix}/{ORIGIN}"
    put_frozen(blobs, origin, one.parents, SYSTEM_CLOCK, origins=one.origins)
    try:
        if hold(blobs, prefix, named_files(blobs, [parent.manifest for parent in one.parents])):
            return
    except BlobMissing:
        release(blobs, prefix, one.origins)
    blobs.delete(origin)
    raise StateMissing(
        f"the savepoint {savepoint.name} of {savepoint.query} was deleted meanwhile: its files are gone",
        hint="remove the new checkpoint, and start from another savepoint: `headrace savepoint list`",
    )
