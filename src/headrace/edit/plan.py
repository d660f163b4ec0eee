"""What a write of state will do, or the reason why it is refused. Nothing is written here.

A write becomes a batch of its own in Spark's logs: an empty one after the last committed batch. So it has a
version like any other, and the version before it stays readable. A new query has no batch yet: its initial
state is version -1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from headrace.errors import QueryError, StateMissing
from headrace.format.manifest import Manifest
from headrace.format.names import INITIAL
from headrace.inspect.checkpoint import OFFSETS, Checkpoint, FolderFiles
from headrace.inspect.state import State
from headrace.inspect.versions import chosen, read_manifests, readable
from headrace.plan.epochs import base_of
from headrace.plan.ids import new_write_id
from headrace.plan.partitions.layouts import layout_at
from headrace.plan.spec import OperatorSpec
from headrace.plan.window import kind_of

SPARK_STATE = "state"
OWN_NODE = "headrace:"  # how Spark's metadata calls operators of ours


@dataclass(frozen=True)
class WritePlan:
    """One write of one operator's state; travels to the tasks that stage its rows."""

    checkpoint: str
    location: str
    query: str
    spec: OperatorSpec
    version: int
    bases: tuple[Manifest | None, ...]  # by partition: the version that it follows
    overwrite: bool
    write_id: str
    by_range: bool = False  # whether folders are named by hash groups

    @property
    def staging(self) -> str:
        """The folder of staged rows, relative to the operator's."""
        return f"writes/{self.write_id}"

    @property
    def closed_through_us(self) -> int | None:
        """Windows that end up to here are closed."""
        closed = [base.closed_through_us for base in self.bases if base is not None]
        return max((bound for bound in closed if bound is not None), default=None)


def plan_write(state: State, operator: str, *, overwrite: bool) -> WritePlan:
    """The write that would follow the newest version; raises where it cannot be."""
    record, checkpoint = state.record(operator), state.checkpoint
    refuse_store(record.spec)
    refuse_remote(checkpoint)
    committed = refuse_unfinished(checkpoint)
    refuse_spark_state(checkpoint)
    version = INITIAL if committed is None else committed + 1
    base = None if committed is None else base_of(record.begun, version)
    layout = record.known_layouts[-1] if base is None else layout_at(record.known_layouts, base)
    if layout is None:
        raise QueryError(
            f"operator {operator} is a branch that has not run yet",
            hint="start its query once, and write then",
        )
    bases: tuple[Manifest | None, ...] = (None,) * layout.partitions
    if base is not None:
        blobs, complete = state.blobs(operator), state.published(operator)
        number = chosen(operator, readable(complete, committed), committed, base)
        bases = read_manifests(blobs, complete[number])
    return WritePlan(
        checkpoint.files.root,
        record.location,
        state.query,
        replace(record.spec, partitions=layout.partitions),
        version,
        bases,
        overwrite,
        new_write_id(),
        layout.by_range,
    )


def refuse_store(spec: OperatorSpec) -> None:
    """Refuse state whose form cannot be made of a table's rows."""
    if not spec.work.keeps_rows and not spec.work.adds_up:
        raise QueryError(
            f"operator {spec.name} is {spec.work.noun}: its state cannot be made of a table's rows",
            hint="write the state of aggregates, joins and functions over windows; read any other",
        )
    if spec.work.keeps_rows and spec.window is None:
        raise QueryError(
            f"operator {spec.name} is a join without a window: its state cannot be made of a table's rows",
            hint="feed the rows through the query instead, as a batch of its source",
        )
    if spec.store == "rocksdb":
        raise QueryError(
            f"the state of operator {spec.name} is in RocksDB, which only its host can write",
            hint="leave .store('rocksdb') out of a new query, and write its initial state",
        )
    if kind_of(spec.window) in ("session", "settled"):
        raise QueryError(
            f"operator {spec.name} has windows of each key's own: they cannot be made of a table's rows",
            hint="feed the rows through the query instead, as a batch of its source",
        )


def refuse_remote(checkpoint: Checkpoint) -> None:
    """A write adds files to Spark's checkpoint, each only where there is none."""
    if not isinstance(checkpoint.files, FolderFiles):
        raise QueryError(
            f"the checkpoint {checkpoint.files.root} is in an object store; state can be read there only",
            hint="write where the checkpoint is on a file system; its state may be in an object store",
        )


def refuse_unfinished(checkpoint: Checkpoint) -> int | None:
    """The last committed batch; a batch that is planned and not committed is somebody's."""
    committed, planned = checkpoint.committed, max(checkpoint.batches(OFFSETS), default=None)
    if planned is not None and (committed is None or planned > committed):
        raise QueryError(
            f"the query at {checkpoint.files.root} is running, or was stopped in the middle of batch "
            f"{planned}",
            hint="stop it; if it is stopped, let it finish that batch: start it with "
            "trigger(availableNow=True)",
        )
    return committed


def refuse_spark_state(checkpoint: Checkpoint) -> None:
    """Spark's own stateful operators count every batch; a batch that skips them would break them."""
    nodes = checkpoint.files.list(SPARK_STATE)
    names = [state_node_name(checkpoint, node) or "" for node in nodes if node.isdecimal()]
    if not all(name.startswith(OWN_NODE) for name in names):
        raise QueryError(
            f"the query at {checkpoint.files.root} also has stateful operators of Spark's own",
            hint="state can be written where all stateful operators are Headrace's",
        )


def state_node_name(checkpoint: Checkpoint, node: str) -> str | None:
    """What Spark's metadata calls a stateful node of the plan."""
    text = checkpoint.files.read(f"{SPARK_STATE}/{node}/_metadata/metadata")
    if text is None:
        return None
    try:
        return str(json.loads(text.splitlines()[-1])["operatorInfo"]["operatorName"])
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def refuse_moved(state: State, plan: WritePlan) -> None:
    """Refuse to publish where the query has gone on since the write was planned."""
    again = plan_write(state, plan.spec.name, overwrite=plan.overwrite)
    if (again.version, again.bases) != (plan.version, plan.bases):
        raise StateMissing(
            f"the query at {plan.checkpoint} went on to version {again.version - 1} during the write",
            hint="stop the query, and write again; nothing was changed",
        )
