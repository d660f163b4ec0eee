"""Where hints for an operator can come from: its candidate lookaheads, the earliest in the plan first.

    scout    a small job over the input of the next batch, while this one runs
    input    in the host of the operator below, of its rows
    results  in the host of the operator below, of its results
    stage    before the shuffle, in the stage that reads the source, or in the tasks of the operator below
    door     in the state host, of rows that wait to be folded

Which of the first three an operator has depends on Spark's plan of the batch (`jvm/scala/Link.scala`,
`jvm/scala/Scout.scala`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from headrace.plan.choice import adds
from headrace.plan.spec import Fold, OperatorSpec
from headrace.plan.window import kind_of
from headrace.plan.work.base import Work
from headrace.plan.work.cells import Cells
from headrace.plan.work.changes.distinct import Distinct
from headrace.plan.work.changes.retracting import Retracting
from headrace.plan.work.changes.top import Top
from headrace.plan.work.dedup import Dedup
from headrace.plan.work.grouped import Grouped
from headrace.plan.work.holistic import Holistic
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.plan.work.joins.window_join import WindowJoin

Prefetch = Literal["auto", "on", "off", "scout", "input", "results", "stage", "door"]

SCOUT, INPUT, RESULTS, STAGE, DOOR = "scout", "input", "results", "stage", "door"
PREFETCHING: tuple[Prefetch, ...] = ("auto", "on", "off", "scout", "input", "results", "stage", "door")
EARLY = (SCOUT, INPUT, RESULTS)

# Why kinds of work have no lookahead.
REASONS = {
    Holistic.name: "kept rows are read once, when their window closes",
    WindowJoin.name: "rows of both sides are read once, when their window closes",
    Grouped.name: "a group is read once, when user code gets it",
    Cells.name: "the worker of the processor requests the state of its own blocks",
    StreamJoin.name: "its rows meet their partners when the watermark passes them, not when they come",
    Distinct.name: "its stores go by keys with their values, which only the host knows",
}


@dataclass(frozen=True)
class PrefetchSettings:
    """The settings of an operator: whether to read ahead, and the tolerated part of unused reads."""

    mode: Prefetch = "off"
    waste: float = 0.0


NO_PREFETCH = PrefetchSettings()


@dataclass(frozen=True)
class Candidates:
    """The lookaheads of an operator, the earliest first; without any, the reason."""

    names: tuple[str, ...] = ()
    reason: str = ""
    missing: tuple[tuple[str, str], ...] = ()  # candidates that others have, and why this one has none


def candidates_of(
    spec: OperatorSpec,
    *,
    in_jvm: bool,
    early: Collection[str] = (),
    missing: tuple[tuple[str, str], ...] = (),
) -> Candidates:
    """The lookaheads of an operator that reads state when a row arrives.

    `early` are those that Spark's plan of the batch allows; `missing` are the others, with reasons.
    """
    if spec.store == "memory":
        return Candidates(reason="all of its state stays in memory")
    if spec.store == "rocksdb":
        return Candidates(reason="RocksDB reads through its own cache")
    if kind_of(spec.window) == "session":
        return Candidates(reason="sessions are read when they close, ahead by spark.headrace.read.ratio")
    if adds(spec):
        return Candidates(reason="its windows come out once: rows only add to them")
    if not reads_on_arrival(spec.work):
        return Candidates(reason=REASONS[spec.work.name])
    if not in_jvm:
        return Candidates((DOOR,), missing=((STAGE, "the operator runs in Python workers"),))
    if spec.work.combined:
        return Candidates((DOOR,), missing=((STAGE, "rows are combined before the shuffle"),))
    return Candidates((*(name for name in EARLY if name in early), STAGE, DOOR), missing=missing)


def reads_on_arrival(work: Work) -> bool:
    """Whether a row reads state when it comes."""
    if isinstance(work, StreamJoin):
        return work.meets == "arrival" or (work.meets == "both" and work.how != "anti")
    return isinstance(work, Fold | Retracting | Dedup | Top)


def caches_rows(work: Work) -> bool:
    """Whether state of frequent keys stays in memory, so that they need no hints."""
    return not isinstance(work, StreamJoin)
