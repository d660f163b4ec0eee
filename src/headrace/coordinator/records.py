"""The record of one operator in Spark's checkpoint: what it is, where its state lies, what it began.

`<checkpoint>/headrace-operators/<name>.json`, written before the first task of a batch may begin. It ties
state to the checkpoint: a checkpoint without its record, or a record that differs, stops the query with
an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Protocol

from headrace.checkpoint.operator_record import refuse_changes
from headrace.coordinator.epochs import begin_batch
from headrace.errors import SettingError, StateCorrupt, StateMissing, StateUnsupported
from headrace.format.names import component
from headrace.spec import OperatorSpec

FORMAT = 1
FOLDER = "headrace-operators"


class SmallFiles(Protocol):
    """Small files under a checkpoint directory."""

    root: str

    def read(self, name: str) -> str | None:
        """The text of a file, or None when it is not there."""

    def write(self, name: str, text: str) -> None:
        """Write durably; readers see the old text or the new."""


@dataclass(frozen=True)
class OperatorRecord:
    """What the checkpoint knows about one operator."""

    location: str
    spec: OperatorSpec
    begun: tuple[int, ...]

    def began(self, batch: int) -> OperatorRecord:
        return replace(self, begun=tuple(begin_batch(self.begun, batch)))

    def to_json(self) -> str:
        spec = json.loads(self.spec.to_json())
        said = {"format": FORMAT, "location": self.location, "spec": spec, "begun": list(self.begun)}
        return json.dumps(said, indent=1)

    @classmethod
    def from_json(cls, text: str, path: str) -> OperatorRecord:
        try:
            said = json.loads(text)
            written = said["format"]
            if written == FORMAT:
                spec = OperatorSpec.from_json(json.dumps(said["spec"]))
                return cls(said["location"], spec, tuple(int(number) for number in said["begun"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StateCorrupt(
                f"{path} is not a Headrace operator record: {error}", hint="restore it from a backup"
            ) from None
        raise StateUnsupported(
            f"{path} has format {written}; this release reads {FORMAT}",
            hint="use the release that wrote it",
        )


def record_name(operator: str) -> str:
    return f"{FOLDER}/{component(operator)}.json"


def opened(
    found: OperatorRecord | None, spec: OperatorSpec, location: str, batch: int, *, new: bool, path: str
) -> OperatorRecord:
    """The record to go on with at the first batch of a run, or the reason why the query must stop."""
    if found is None:
        if batch > 0 and not new:
            raise StateMissing(
                f"operator {spec.name} has no record at batch {batch}: {path} is not there",
                hint="restore it together with the state; if the operator is new in this query, or had no "
                "rows until now, set spark.headrace.state.new=true for one start",
            )
        return OperatorRecord(location, spec, ())
    if found.location != location:
        raise SettingError(
            f"the state of {spec.name} lies in {found.location}, but the state location is {location}",
            hint=f"set spark.headrace.state.location to {found.location}, or start from a new checkpoint",
        )
    refuse_changes(found.spec, spec)
    return replace(found, spec=spec)  # what may change, such as the watermark's delay, has changed
