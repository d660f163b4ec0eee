"""The last steps of a write: publish every partition, then add its batch to Spark's logs.

    manifests of all partitions ─▶ offsets/N+1 ─▶ operator record ─▶ commits/N+1

The batch has the offsets of the one before it, so it reads nothing. `commits/N+1` makes the write count: a
write that breaks off before leaves a batch that Spark runs as if it had never been. Each entry is made only
where there is none, so a query that runs and this write cannot both have the batch: one of them fails.
Initial state has no batch; the operator's record makes it count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.beside.record_log import RecordLog
from headrace.checkpoint.operator_record import ensure_operator
from headrace.checkpoint.runs import claim_run
from headrace.edit.plan import OWN_NODE, WritePlan, refuse_moved, state_node_name
from headrace.edit.publish import MergedPartition, PartitionWrite
from headrace.edit.rows import RowMaker
from headrace.edit.shards import Shard, staging_prefix
from headrace.errors import QueryError
from headrace.format.names import INITIAL
from headrace.inspect.checkpoint import COMMITS, OFFSETS, Checkpoint
from headrace.inspect.state import State

IDS = "stateUniqueIds"  # in Spark's commit log of format 2


def commit_write(plan: WritePlan, maker: RowMaker, shards: Sequence[Shard]) -> None:
    """Make staged rows the next version; raises, and changes no version, where the query has gone on."""
    with State(plan.checkpoint) as state:
        refuse_moved(state, plan)
        blobs = state.open_location(plan.location, create=True)
        ensure_operator(blobs, plan.query, plan.spec)  # initial state has no record yet
        merged: list[MergedPartition] = []
        try:
            for partition in range(plan.spec.partitions):
                mine = [shard for shard in shards if shard.partition == partition]
                merged.append(PartitionWrite(plan, maker, blobs, partition).merge(mine))
            run = claim_run(blobs, plan.query, plan.write_id)
            for one in merged:
                one.publish(run)
        finally:
            for one in merged:
                one.discard()
        _add_batch(state, plan, run)
    discard_write(plan, shards)


def discard_write(plan: WritePlan, shards: Sequence[Shard]) -> None:
    """Remove staged rows."""
    with State(plan.checkpoint) as state:
        blobs = state.open_location(plan.location, create=True)
        for name in {*(shard.name for shard in shards), *blobs.list(f"{staging_prefix(plan)}/")}:
            blobs.delete(name)


def _add_batch(state: State, plan: WritePlan, run: int) -> None:
    files = LocalFiles(plan.checkpoint)
    records = RecordLog(files, plan.spec.name)
    record = replace(state.record(plan.spec.name), spec=plan.spec).with_partitions(plan.version)
    before, entry = plan.version - 1, plan.version
    if plan.version != INITIAL:
        _put_new(files, f"{OFFSETS}/{entry}", files.read(f"{OFFSETS}/{before}") or "")
    records.put(record.began(plan.version), plan.write_id)
    if plan.version != INITIAL:
        text = files.read(f"{COMMITS}/{before}") or ""
        _put_new(files, f"{COMMITS}/{entry}", _commit_entry(state.checkpoint, plan, run, text))


def _commit_entry(checkpoint: Checkpoint, plan: WritePlan, run: int, text: str) -> str:
    """The entry of the batch before, with the ids of the new version where Spark keeps ids of state."""
    head, _, body = text.rstrip("\n").rpartition("\n")
    members = json.loads(body)
    ids = members.get(IDS)
    if not ids:
        return text
    mine = f"{OWN_NODE}{plan.spec.name}"
    for node in ids:
        if state_node_name(checkpoint, node) == mine:
            ids[node] = [[f"v{plan.version}-r{run}"]] * plan.spec.partitions
    return f"{head}\n{json.dumps(members)}"


def _put_new(files: LocalFiles, name: str, text: str) -> None:
    """Make a file that must not be there, whole or not at all."""
    if not files.put(name, text):
        raise QueryError(
            f"{files.root}/{name} is there: the query has begun that batch",
            hint="stop the query, and write again; the state was not changed",
        )
