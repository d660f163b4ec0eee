"""The record of one operator in Spark's checkpoint: what it is, where its state lies, what it began.

It is written before the first task of a batch may begin (`beside/record_log.py`). It ties state to the
checkpoint: a checkpoint without its record, or a record that differs, stops the query with an error.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from headrace.checkpoint.operator_record import refuse_changes
from headrace.errors import (
    OperatorChanged,
    QueryError,
    SettingError,
    StateCorrupt,
    StateMissing,
    StateUnsupported,
)
from headrace.format.names import component, operator_prefix
from headrace.plan.epochs import base_of, begin_batch
from headrace.plan.partitions.layouts import Layout, Origin, first_layout, origin_of, rescaled
from headrace.plan.spec import OperatorSpec

FORMAT = 1
FOLDER = "headrace-operators"
STATE = "headrace-state"  # the default state location, relative to the checkpoint


class ReadFiles(Protocol):
    """Small files under a checkpoint directory, to be read."""

    @property
    def root(self) -> str:
        """Where this is, for messages."""

    def read(self, name: str) -> str | None:
        """The text of a file, or None when it is not there; bytes that are no UTF-8 become surrogates."""

    def list(self, folder: str) -> list[str]:
        """The names in a folder, in order, hidden ones left out; empty when it is not there."""


class SmallFiles(ReadFiles, Protocol):
    """Small files under a checkpoint directory."""

    def write(self, name: str, text: str) -> None:
        """Write durably; readers see the old text or the new."""

    def put(self, name: str, text: str) -> bool:
        """Write durably, whole or not at all, where there is no such file; whether it was written."""

    def remove(self, name: str) -> None:
        """Remove a file; fine when it is gone."""


@dataclass(frozen=True)
class OperatorRecord:
    """The record of one operator in the checkpoint."""

    location: str
    spec: OperatorSpec
    begun: tuple[int, ...]
    layouts: tuple[Layout, ...] = ()  # empty: the spec's number of partitions, from the first version on

    @property
    def known_layouts(self) -> tuple[Layout, ...]:
        return self.layouts or first_layout(self.spec.partitions)

    def with_partitions(self, batch: int) -> OperatorRecord:
        """The record of a start at `batch` with the spec's number of partitions."""
        base = base_of(self.begun, batch)
        return replace(self, layouts=rescaled(self.known_layouts, base, self.spec.partitions))

    def origin(self, batch: int) -> Origin | None:
        """Where the base of `batch` is, if in another layout."""
        return origin_of(self.known_layouts, base_of(self.begun, batch))

    @property
    def by_range(self) -> bool:
        """Whether the folders of the newest layout are named by hash groups."""
        return self.known_layouts[-1].by_range

    def began(self, batch: int) -> OperatorRecord:
        return replace(self, begun=tuple(begin_batch(self.begun, batch)))

    def body(self, root: str) -> dict[str, Any]:
        """The record as plain values; state inside of the checkpoint moves with it."""
        spec = json.loads(self.spec.to_json())
        location = STATE if self.location == default_location(root) else self.location
        body = {"location": location, "spec": spec, "begun": list(self.begun)}
        if self.known_layouts == first_layout(self.spec.partitions):
            return body
        return body | {"layouts": [asdict(layout) for layout in self.layouts]}

    @classmethod
    def of(cls, body: dict[str, Any], root: str) -> OperatorRecord:
        """The record that `body` described, in the checkpoint at `root`."""
        spec, location = OperatorSpec.from_json(json.dumps(body["spec"])), body["location"]
        location = default_location(root) or location if location == STATE else location
        layouts = tuple(Layout(**layout) for layout in body.get("layouts", ()))
        return cls(location, spec, tuple(int(number) for number in body["begun"]), layouts)

    def to_json(self) -> str:
        """The one file per operator that releases before wrote."""
        return json.dumps({"format": FORMAT, **self.body("")}, indent=1)

    @classmethod
    def from_json(cls, text: str, path: str) -> OperatorRecord:
        try:
            body = json.loads(text)
            written = body["format"]
            if written == FORMAT:
                return cls.of(body, "")
        except (ValueError, KeyError, TypeError) as error:
            raise StateCorrupt(
                f"{path} is not a Headrace operator record: {error}", hint="restore it from a backup"
            ) from None
        raise StateUnsupported(
            f"{path} has format {written}; this release reads {FORMAT}",
            hint="use the release that wrote it",
        )


def default_location(root: str) -> str | None:
    """The state location inside of a checkpoint; None for a checkpoint that is not on a file system."""
    if not root.startswith(("file:", "/")):
        return None
    return f"/{root.removeprefix('file:').strip('/')}/{STATE}"


def at_home(record: OperatorRecord, files: ReadFiles) -> OperatorRecord:
    """The record of a release before, which has the state's absolute path, after a move or a copy.

    A checkpoint with a state folder of its own uses that one.
    """
    own = default_location(files.root)
    if own is None or record.location == own or not record.location.endswith(f"/{STATE}"):
        return record
    return replace(record, location=own) if files.list(STATE) else record


def record_name(operator: str) -> str:
    """The one file per operator that releases before wrote."""
    return f"{FOLDER}/{component(operator)}.json"


def opened(
    record: OperatorRecord | None, spec: OperatorSpec, location: str, batch: int, *, new: bool, path: str
) -> OperatorRecord:
    """The record to go on with at the first batch of a run, or the reason why the query must stop."""
    if record is None:
        if batch > 0 and not new:
            raise StateMissing(
                f"operator {spec.name} has no record at batch {batch}: {path} is not there",
                hint="restore it together with the state; if the operator is new in this query, or had no "
                "rows until now, set spark.headrace.state.new=true for one start",
            )
        return OperatorRecord(location, spec, ())
    if record.location != location:
        raise SettingError(
            f"the state of {spec.name} lies in {record.location}, but the state location is {location}",
            hint=f"set spark.headrace.state.location to {record.location}, or start from a new checkpoint",
        )
    refuse_changes(record.spec, spec)
    spec = replace(spec, work=spec.work.evolved(record.spec.work))
    record = replace(record, layouts=record.known_layouts, spec=spec)  # what may change has changed
    rescaled_record = record.with_partitions(batch)
    refuse_rescale(rescaled_record, batch)
    return rescaled_record


def refuse_unfinished_branch(record: OperatorRecord, query: str, root: str) -> None:
    """Raises where the record is of a branch with another query id: its checkpoint was never completed."""
    parents, own = record.known_layouts[0].parents, f"{operator_prefix(query, record.spec.name)}/"
    if parents and not parents.startswith(own):
        raise QueryError(
            f"the checkpoint {root} is an unfinished branch of another query",
            hint="remove it, and start the query with hr.start(writer, from_savepoint=…)",
        )


def refuse_default_number(record: OperatorRecord, spec: OperatorSpec) -> None:
    """Raises where a number of partitions that nobody set would rescale state: it follows the machine."""
    number = record.known_layouts[-1].partitions
    if record.begun and number != spec.partitions:
        raise SettingError(
            f"operator {spec.name} has {number} partitions, and the default on this machine is "
            f"{spec.partitions}",
            hint=f"set spark.headrace.partitions={number} to go on as before, or another number to rescale",
        )


def refuse_rescale(record: OperatorRecord, batch: int) -> None:
    """Raises where the store of the operator cannot have another number of partitions."""
    origin = record.origin(batch)
    if origin is not None and record.spec.store == "rocksdb":
        raise OperatorChanged(
            f"operator {record.spec.name} has {origin.partitions} partitions in the rocksdb store, whose "
            f"files cannot be shared, and is to have {record.spec.partitions}",
            hint=f"the state was not touched: set spark.headrace.partitions={origin.partitions}, or start "
            "with a new checkpoint location",
        )
