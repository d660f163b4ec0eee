"""Every moment of a commit, every victim, every commit mode: the rounds of `headrace crash --matrix`.

The moments are the code's own list. Pure: query, input and details of a combination follow from its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from headrace.checkpoint.steps import Moment
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.testing.crash.plan import Plan
from headrace.testing.crash.queries import KINDS

Victim = Literal["host", "worker", "driver", "disk"]
VICTIMS: tuple[Victim, ...] = get_args(Victim)

FILES = 5
RECOVERY = (Moment.RECOVERING, Moment.RECOVERED)
_ONLY_BEHIND = (Moment.LOGGING, Moment.LOGGED, Moment.UPLOADING, Moment.UPLOADED, Moment.RETIRED)
RESCALE = (Moment.RESCALING, Moment.RESCALED)  # only where the number of partitions changes
COMPACTION = (Moment.COMPACTING, Moment.COMPACTED)  # only after more commits than a round has
COLLECTION = (Moment.CONDEMNED, Moment.SWEEPING, Moment.SWEPT)  # the same
CACHE = (Moment.PROMOTING, Moment.PROMOTED, Moment.EVICTING, Moment.EVICTED)  # only of files elsewhere
_OTHERS = (*RESCALE, *COMPACTION, *COLLECTION, *CACHE)  # played without Spark: tests/crash
_HOLDS_S = (0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Combination:
    """`victim` is killed while a host has stopped at `moment` of a commit in mode `commit`.

    The victim is the host itself, all Python workers, the driver with its JVM, or everything including the
    machine's local disk.
    """

    moment: Moment
    victim: Victim
    commit: CommitMode

    def __str__(self) -> str:
        return f"{self.victim} at {self.moment}, {self.commit}"


@dataclass(frozen=True)
class Case:
    """A combination with all details of a round."""

    number: int
    combination: Combination

    @property
    def plan(self) -> Plan:
        """The input and the query; the queries alternate, in another order each time around."""
        kind = KINDS[(self.number + self.number // len(KINDS)) % len(KINDS)]
        return Plan(self.number, kind, self.combination.commit, (), FILES)

    @property
    def from_batch(self) -> int:
        """The stop counts from the start of this batch."""
        return 1 if self.recovers else 1 + self.number // 3 % 3

    @property
    def nth(self) -> int:
        """The partition's number at which a host stops; the other partitions go on."""
        return 1 + self.number % 3

    @property
    def hold_s(self) -> float:
        """How long a surviving host stays stopped after the kill; Spark retries meanwhile."""
        return _HOLDS_S[self.number // len(VICTIMS) % len(_HOLDS_S)]

    @property
    def recovers(self) -> bool:
        """Whether a host has to be killed first, so that there is a log to recover."""
        return self.combination.moment in RECOVERY

    @property
    def commits_first(self) -> CommitMode:
        """The mode of the first start. Synchronous commits leave no log, so such a query is asynchronous
        first.
        """
        return "async" if self.recovers and self.combination.commit == "sync" else self.combination.commit

    def __str__(self) -> str:
        return (
            f"{self.number}: {self.combination}, {self.plan.kind}, batch {self.from_batch}, nth {self.nth}"
        )


def occurs(moment: Moment, commit: CommitMode) -> bool:
    """Whether commits of the mode reach the moment: synchronous ones have no log and no upload."""
    return (commit != "sync" or moment not in _ONLY_BEHIND) and moment not in _OTHERS


def matrix(
    moment: Moment | None = None, victim: Victim | None = None, commit: CommitMode | None = None
) -> Iterator[Case]:
    """All cases, or those of one moment, victim or mode; a case has the same number in each selection."""
    combinations = [
        Combination(at, who, mode)
        for at in Moment
        for mode in COMMIT_MODES
        if occurs(at, mode)
        for who in VICTIMS
    ]
    for number, one in enumerate(combinations):
        if moment in (None, one.moment) and victim in (None, one.victim) and commit in (None, one.commit):
            yield Case(number, one)
