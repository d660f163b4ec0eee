"""Spark's checkpoint and state, brought back together after a machine was lost between two acks.

`decide` is pure: it reads Spark's commit log, the operators' records and what is missing on shared storage.
Nothing is to be done, one batch is to be taken back, or neither Spark nor Headrace can repair it. Taking
a batch back moves its entry in `commits/` and the following ones in `offsets/` aside; Spark then replays it
with its own offsets and its own number. Its sink has its rows already, because Spark logs a commit after
the sink: so the replay is *for state only*, and a note records it until it has happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from headrace.errors import StateMissing
from headrace.plan.epochs import base_of

COMMITS, OFFSETS, WITHDRAWN = "commits", "offsets", "headrace-withdrawn"
REPLAY, REPLAYED = f"{WITHDRAWN}/replay", f"{WITHDRAWN}/replayed"


class CheckpointFiles(Protocol):
    """Spark's checkpoint directory."""

    root: str

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder, hidden ones left out; empty when it is not there."""

    def read(self, name: str) -> str | None:
        """The text of a file, or None when it is not there."""

    def write(self, name: str, text: str) -> None:
        """Write durably; readers see the old text or the new."""

    def move(self, name: str, to: str) -> None:
        """Put a file elsewhere under the checkpoint, over one that is there; fine when it is gone."""


@dataclass(frozen=True)
class OperatorFound:
    """One operator: the batches it began, and which partitions lack which of the requested versions."""

    name: str
    begun: tuple[int, ...]
    missing: Mapping[int, tuple[int, ...]]  # version: partitions; empty where all have it


@dataclass(frozen=True)
class Decision:
    """What is to be done; `batch` and `offsets` are what is withdrawn."""

    action: Literal["nothing", "withdraw", "refuse"]
    reason: str
    batch: int | None = None
    offsets: tuple[int, ...] = ()


def versions_wanted(begun: Sequence[int], committed: int) -> list[int]:
    """The version that the batch after `committed` starts from, and the one before it; newest first."""
    newest = base_of(begun, committed + 1)
    before = None if newest is None else base_of(begun, newest)
    return [version for version in (newest, before) if version is not None]


def decide(committed: int | None, offsets: Iterable[int], operators: Sequence[OperatorFound]) -> Decision:
    """What to do when Spark has committed batch `committed`, and planned the batches of `offsets`."""
    if committed is None:
        return Decision("nothing", "Spark has committed no batch")
    lacking = [operator for operator in operators if _lacks(operator, committed + 1)]
    if not lacking:
        return Decision("nothing", f"state of batch {committed} is complete")
    for operator in lacking:
        newest = base_of(operator.begun, committed + 1)
        if newest != committed:
            return Decision(
                "refuse",
                f"operator {operator.name} last ran in batch {newest}, whose state is missing, and Spark "
                f"has gone on to batch {committed} since: Spark can replay the last batch, and no more",
            )
    for operator in operators:
        if committed in operator.begun and _lacks(operator, committed):
            return Decision(
                "refuse",
                f"state of operator {operator.name} is missing for batch {committed} and also for batch "
                f"{base_of(operator.begun, committed)} before it: more than a lost machine explains",
            )
    gone = ", ".join(f"{operator.name} {_partitions(operator, committed)}" for operator in lacking)
    later = tuple(sorted(number for number in offsets if number > committed))
    return Decision("withdraw", f"state of batch {committed} is missing: {gone}", committed, later)


def _lacks(operator: OperatorFound, batch: int) -> bool:
    """Whether `batch` could not begin."""
    base = base_of(operator.begun, batch)
    return base is not None and bool(operator.missing.get(base))


def _partitions(operator: OperatorFound, version: int) -> str:
    missing = operator.missing[version]
    return f"partition{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"


def numbers(files: CheckpointFiles, folder: str) -> list[int]:
    """The batches that have an entry in one of Spark's logs."""
    return sorted(int(name) for name in files.list(folder) if name.isdecimal())


@dataclass(frozen=True)
class Replay:
    """The note of a withdrawal: the batch to be replayed, and the later plans that were moved aside."""

    batch: int
    offsets: tuple[int, ...] = ()

    def to_text(self) -> str:
        return " ".join(map(str, (self.batch, *self.offsets)))

    @classmethod
    def of(cls, text: str) -> Replay:
        batch, *offsets = map(int, text.split())
        return cls(batch, tuple(offsets))


def replay_due(files: CheckpointFiles) -> int | None:
    """The batch that is to be replayed for its state only, if it is the next one that Spark runs."""
    noted = _noted(files)
    if noted is None or _newest(files, COMMITS) != noted.batch - 1:
        return None
    if _newest(files, OFFSETS) != noted.batch:
        raise StateMissing(
            f"batch {noted.batch} of the query at {files.root} is to be replayed, but its plan is not the "
            f"newest in {OFFSETS}/",
            hint=f"bring {OFFSETS}/{noted.batch} back, and remove later ones, or start again with a new "
            "checkpoint location",
        )
    return noted.batch


def settle_replay(files: CheckpointFiles) -> list[str]:
    """Puts the later plans back once the batch is committed, and files the note; what was put back.

    Spark then runs the planned batch with the offsets that a sink may have seen. A note whose batch is not
    the next one belongs to a checkpoint that was rolled back by hand: it is filed, too.
    """
    noted = _noted(files)
    committed = _newest(files, COMMITS)
    if noted is None or committed == noted.batch - 1:
        return []
    back = []
    if committed == noted.batch:
        planned = numbers(files, OFFSETS)
        back = [f"{OFFSETS}/{number}" for number in noted.offsets if number not in planned]
    for entry in back:
        for name in (_checksum_of(entry), entry):
            files.move(f"{WITHDRAWN}/{name}", name)
    files.move(REPLAY, REPLAYED)
    return back


def _noted(files: CheckpointFiles) -> Replay | None:
    text = files.read(REPLAY)
    return None if text is None else Replay.of(text)


def _newest(files: CheckpointFiles, folder: str) -> int:
    return max(numbers(files, folder), default=-1)


def _checksum_of(entry: str) -> str:
    """The file in which Hadoop keeps the checksum of a log entry."""
    folder, _, number = entry.partition("/")
    return f"{folder}/.{number}.crc"


def withdraw(files: CheckpointFiles, decision: Decision) -> list[str]:
    """Move Spark's entries aside, the newest first; what was moved.

    In this order a crash in between leaves a checkpoint that Spark understands and that decides the same
    again. A planned batch less is planned again, and only then is the committed one taken back.
    """
    assert decision.batch is not None, "only a withdrawal withdraws"
    files.write(REPLAY, Replay(decision.batch, _withdrawn_before(files, decision)).to_text())
    entries = [f"{OFFSETS}/{number}" for number in reversed(decision.offsets)]
    entries.append(f"{COMMITS}/{decision.batch}")
    for entry in entries:
        for name in (_checksum_of(entry), entry):
            files.move(name, f"{WITHDRAWN}/{name}")
    return entries


def _withdrawn_before(files: CheckpointFiles, decision: Decision) -> tuple[int, ...]:
    """The later plans, with those that a withdrawal of the same batch moved before it broke off."""
    noted = _noted(files)
    before = noted.offsets if noted is not None and noted.batch == decision.batch else ()
    return tuple(sorted({*before, *decision.offsets}))
