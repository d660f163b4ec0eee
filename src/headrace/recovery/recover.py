"""Looks at a checkpoint and its state, and repairs what a lost machine left: the shell around `decide`.

Threads: one. Nothing is changed while the query still runs: what looks like a gap may be a commit under
way, so a gap is looked at for a while. A commit log that moves meanwhile, or a lease, is somebody's.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.blob.locations import Locations
from headrace.checkpoint.beside.lease import LeaseWatch
from headrace.checkpoint.beside.record_log import stored_records
from headrace.checkpoint.runs import claim_run
from headrace.clock import Clock, Deadline, SystemClock
from headrace.errors import StateMissing
from headrace.plan.times import TIMES
from headrace.recovery.reconcile import (
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
from headrace.recovery.redo import StateOf, logged, missing, redo

Redo = Callable[[StateOf, int], None]


@dataclass(frozen=True)
class Findings:
    """What a look at the checkpoint gave."""

    committed: int | None
    decision: Decision
    redoable: tuple[tuple[StateOf, int, tuple[int, ...]], ...]  # versions in this machine's log

    def lines(self) -> list[str]:
        """For people."""
        lines = [
            f"Spark has committed {'no batch' if self.committed is None else f'batch {self.committed}'}"
        ]
        for state, version, partitions in self.redoable:
            lines.append(
                f"operator {state.operator}: version {version} is in this machine's log and not on shared "
                f"storage, for {len(partitions)} of {len(state.prefixes(version))} partitions"
            )
        return [*lines, self.decision.reason]


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
                gone, in_log = missing(blobs, state, version), logged(self._local, state, version)
                again = tuple(number for number in gone if number in in_log)
                if again:
                    redoable.append((state, version, again))
                lacking[version] = tuple(number for number in gone if number not in in_log)
            operators.append(OperatorFound(state.operator, begun, lacking))
        decision = decide(committed, numbers(self._files, OFFSETS), operators)
        return Findings(committed, decision, tuple(redoable))

    def repair(self) -> Findings:
        """Finish what is logged, then take a lost batch back; what was done. Raises when it is refused."""
        findings = self.look()
        for state, version, _ in findings.redoable:
            redo(self._local, state, version)
        if findings.decision.action == "nothing":
            return findings
        self._ask_elsewhere(findings.committed)
        again = self._look_again(findings.committed)
        if again.decision.action == "refuse":
            raise refused(self._files.root, again.decision)
        if again.decision.action == "withdraw":
            withdraw(self._files, again.decision)
        return again

    def _look_again(self, committed: int | None) -> Findings:
        """Looks until the gap is closed, or no host of a dead driver can close it any more.

        A driver that is alive renews its lease. When the lease is over, a new run is claimed: hosts of the
        driver commit nothing more, so that a withdrawn batch cannot be followed by one of theirs.
        """
        deadline, lease = Deadline(TIMES.gap_settle_s * 1000, self._clock), LeaseWatch(self._files)
        over, claimed = Deadline(TIMES.lease_s * 1000, self._clock), False
        while True:
            self._clock.sleep_ms(TIMES.gap_look_s * 1000)
            again = self.look()
            if again.committed != committed:
                raise StateMissing(
                    f"the query at {self._files.root} is running: it went from batch {committed} to "
                    f"{again.committed} just now",
                    hint="stop it first, or leave it alone",
                )
            lease.refuse_live()
            if again.decision.action == "nothing" or (claimed and deadline.is_over):
                return again
            if over.is_over and not claimed:
                claimed = self._claim_runs()

    def _claim_runs(self) -> bool:
        """Fences every start of the query before this moment."""
        start = f"recovery {uuid.uuid4().hex}"
        for location, query in {(state.location, state.query) for state, _ in self._operators()}:
            claim_run(self._locations.open(location, create=False), query, start, clock=self._clock)
        return True

    def _ask_elsewhere(self, committed: int | None) -> None:
        """Let other machines finish what is in their logs."""
        if self._redo_elsewhere is None or committed is None:
            return
        for state, begun in self._operators():
            for version in versions_wanted(begun, committed):
                self._redo_elsewhere(state, version)

    def _operators(self) -> list[tuple[StateOf, tuple[int, ...]]]:
        metadata = self._files.read("metadata")
        if metadata is None:
            return []
        query = str(json.loads(metadata)["id"])
        return [
            (StateOf(record.location, query, record.spec.name, record.known_layouts), record.begun)
            for record in stored_records(self._files).values()
        ]


def refused(root: str, decision: Decision) -> StateMissing:
    return StateMissing(
        f"state and checkpoint of the query at {root} cannot be brought together: {decision.reason}",
        hint="nothing was changed: bring the machine or its disk back and start there, bring state and "
        "checkpoint back from one backup, or start again with a new checkpoint location",
    )


def withdrawal_text(decision: Decision) -> str:
    """What a withdrawal did, for people."""
    entries = [f"{OFFSETS}/{number}" for number in decision.offsets] + [f"{COMMITS}/{decision.batch}"]
    return (
        f"moved {', '.join(entries)} to {WITHDRAWN}/; hr.start replays batch {decision.batch} for its "
        "state, and gives its rows to no sink: the sink has them"
    )
