"""The kills of a crash round and their moments: pure functions of its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.testing.crash.input import FILES
from headrace.testing.crash.queries import KINDS, Kind

Target = Literal["host", "worker", "jvm", "driver"]
TARGETS: tuple[Target, ...] = ("host", "worker", "jvm")  # the targets of a round's first kill, in turn
STARTING = -1  # the moment counts from the driver's start

Phase = Literal["begun", "logged", "sealed", "published", "written"]
PHASES: tuple[Phase, ...] = ("begun", "begun", "sealed", "published", "published", "written")
PHASES_BEHIND: tuple[Phase, ...] = ("begun", "logged", "logged", "sealed", "published", "written")

_MORE: tuple[Target, ...] = ("host", "worker", "host", "worker", "host", "worker", "jvm", "driver")
_DELAY_MS = {"start": 6_000, "begun": 900, "logged": 120, "sealed": 60, "published": 90, "written": 60}


@dataclass(frozen=True)
class Kill:
    """`target` is killed `delay_ms` after `batch` reached `phase`.

    A batch has *begun* when Spark has its offsets. It is *logged* when the first partition has it in its
    local log. It is *sealed* and *published* when shared storage has a segment and a manifest of it. It is
    *written* when the sink has its rows.
    """

    target: Target
    batch: int
    phase: Phase
    delay_ms: int
    all_at_once: bool = False  # every process of the kind, not one of them

    def __str__(self) -> str:
        who = f"every {self.target}" if self.all_at_once else self.target
        when = "start" if self.batch == STARTING else f"batch {self.batch} {self.phase}"
        return f"{who} at {when} + {self.delay_ms} ms"


@dataclass(frozen=True)
class Plan:
    """One round."""

    seed: int
    kind: Kind
    commit: CommitMode
    kills: tuple[Kill, ...]
    files: int = FILES

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.kind}, {self.commit}: " + ", ".join(map(str, self.kills))


def plan(seed: int, kind: Kind | None = None, commit: CommitMode | None = None) -> Plan:
    """The round of a seed, or the same over another query or commit mode.

    Three consecutive seeds begin with three targets in three modes. In 144 seeds every query meets every
    target in every mode.
    """
    rng = random.Random(seed)
    again, turn = divmod(seed // len(TARGETS), len(KINDS))
    mode = commit or COMMIT_MODES[(seed + turn + again) % len(COMMIT_MODES)]
    targets = [TARGETS[seed % len(TARGETS)], *rng.choices(_MORE, k=rng.choice((1, 1, 2)))]
    moments = sorted(rng.sample(range(STARTING, FILES), k=len(targets)))
    rng.shuffle(targets)
    kills = [_kill(rng, target, batch, mode) for target, batch in zip(targets, moments, strict=True)]
    return Plan(seed, kind or KINDS[turn], mode, tuple(kills))


def _kill(rng: random.Random, target: Target, batch: int, commit: CommitMode) -> Kill:
    phase = rng.choice(PHASES if commit == "sync" else PHASES_BEHIND)
    delay_ms = rng.randrange(_DELAY_MS["start" if batch == STARTING else phase])
    return Kill(target, batch, phase, delay_ms, target == "worker" and rng.random() < 0.5)
