"""Looks at a checkpoint and its state, and repairs what a lost machine left: the shell around `decide`.

Threads: one. Nothing is changed while the query still runs: what looks like a gap may be a commit under
way, so a gap is looked at twice, and a commit log that moves meanwhile is somebody's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.blob.locations import Locations
from headrace.checkpoint.reconcile import (
    COMMITS,
    OFFSETS,
    WITHDRAWN,
    CheckpointFiles,
    Decision,
    OperatorFound,
    decide,
    numbers,
    versions_wanted,
    withdraw,
)
from headrace.clock import Clock, SystemClock
from headrace.coordinator.records import FOLDER, OperatorRecord
from headrace.errors import StateMissing
from headrace.host.redo import StateOf, logged, missing, redo

SETTLE_MS = 3_000.0  # a host that lives publishes, and a query that runs commits, within this time

Redo = Callable[[StateOf, int], None]


@dataclass(frozen=True)
class Findings:
    """What a look at the checkpoint gave."""

    committed: int | None
    decision: Decision
    redoable: tuple[tuple[StateOf, int, tuple[int, ...]], ...]  # versions in this machine's log

    def lines(self) -> list[str]:
        """For people."""
        said = [
            f"Spark has committed {'no batch' if self.committed is None else f'batch {self.committed}'}"
        ]
        for state, version, partitions in self.redoable:
            said.append(
                f"operator {state.operator}: version {version} is in this machine's log and not on shared "
                f"storage, for {len(partitions)} of {state.partitions} partitions"
            )
        return [*said, self.decision.reason]


class Recovery:
    """One checkpoint, seen from one machine."""

    def __init__(
        self,
        files: CheckpointFiles,
        local: Path,
        clock: Clock | None = None,
        redo_elsewhere: Redo | None = None,
    ) -> None:
        self._files, self._local, self._clock = files, local, clock or SystemClock()
        self._locations = Locations(local)
        self._redo_elsewhere = redo_elsewhere

    def look(self) -> Findings:
        """What is there, with this machine's log counted as if it were published."""
        committed = max(numbers(self._files, COMMITS), default=None)
        operators, redoable = [], []
        for state, begun in self._operators():
            blobs = self._locations.open(state.location, create=False)
            lacking: dict[int, tuple[int, ...]] = {}
            for version in versions_wanted(begun, -1 if committed is None else committed):
                gone, here = missing(blobs, state, version), logged(self._local, state, version)
                again = tuple(number for number in gone if number in here)
                if again:
                    redoable.append((state, version, again))
                lacking[version] = tuple(number for number in gone if number not in here)
            operators.append(OperatorFound(state.operator, begun, lacking))
        decision = decide(committed, numbers(self._files, OFFSETS), operators)
        return Findings(committed, decision, tuple(redoable))

    def repair(self) -> Findings:
        """Finish what is logged, then take a lost batch back; what was done. Raises when it is refused."""
        found = self.look()
        for state, version, _ in found.redoable:
            redo(self._local, state, version)
        if found.decision.action == "nothing":
            return found
        self._ask_elsewhere(found.committed)
        self._clock.sleep_ms(SETTLE_MS)
        again = self.look()
        if again.committed != found.committed:
            raise StateMissing(
                f"the query at {self._files.root} is running: it went from batch {found.committed} to "
                f"{again.committed} just now",
                hint="stop it first, or leave it alone",
            )
        if again.decision.action == "refuse":
            raise refused(self._files.root, again.decision)
        if again.decision.action == "withdraw":
            withdraw(self._files, again.decision)
        return again

    def _ask_elsewhere(self, committed: int | None) -> None:
        """Let other machines finish what is in their logs."""
        if self._redo_elsewhere is None or committed is None:
            return
        for state, begun in self._operators():
            for version in versions_wanted(begun, committed):
                self._redo_elsewhere(state, version)

    def _operators(self) -> list[tuple[StateOf, tuple[int, ...]]]:
        metadata = self._files.read("metadata")
        names = [name for name in self._files.list(FOLDER) if name.endswith(".json")]
        if metadata is None:
            return []
        query = str(json.loads(metadata)["id"])
        found = []
        for name in names:
            text = self._files.read(f"{FOLDER}/{name}")
            if text is not None:
                record = OperatorRecord.from_json(text, f"{self._files.root}/{FOLDER}/{name}")
                spec = record.spec
                found.append((StateOf(record.location, query, spec.name, spec.partitions), record.begun))
        return found


def refused(root: str, decision: Decision) -> StateMissing:
    return StateMissing(
        f"state and checkpoint of the query at {root} cannot be brought together: {decision.reason}",
        hint="nothing was changed: bring the machine or its disk back and start there, bring state and "
        "checkpoint back from one backup, or start again with a new checkpoint location",
    )


def told(decision: Decision) -> str:
    """What a withdrawal did, for people."""
    entries = [f"{OFFSETS}/{number}" for number in decision.offsets] + [f"{COMMITS}/{decision.batch}"]
    return (
        f"moved {', '.join(entries)} to {WITHDRAWN}/; hr.start replays batch {decision.batch} for its "
        "state, and gives its rows to no sink: the sink has them"
    )
