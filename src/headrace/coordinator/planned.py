"""Requests of the JVM operator: when Spark plans a batch, and when the batch has ended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import StateCorrupt
from headrace.plan.frontier import UNTIMED, TimeInputs
from headrace.plan.lookahead import NO_PREFETCH, PrefetchSettings
from headrace.plan.options import CommitMode
from headrace.plan.spec import OperatorSpec
from headrace.plan.timing import Timing
from headrace.wire.contract import Summary

_STATE_ID = re.compile(r"v(\d+)-r(\d+)")


@dataclass(frozen=True)
class PlanRequest:
    """One operator at one batch. `node` separates two uses of one operator in a plan."""

    query: str
    run: str
    uid: str
    batch: int
    node: int
    spec: OperatorSpec
    location: str | None
    new: bool
    retain: int
    commit: CommitMode
    stateful: bool  # whether Spark counts the operator as stateful
    timing: Timing = "auto"
    watermarks: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # stateful operators of Spark in the plan
    ids: tuple[str, ...] | None = (
        None  # of the base by partition, from Spark's commit log; None: not recorded
    )
    times: TimeInputs = UNTIMED
    rescales: bool = True  # whether the number of partitions was set
    prefetch: PrefetchSettings = NO_PREFETCH
    early: tuple[str, ...] = ()  # lookaheads that Spark's plan of the batch allows
    missing: tuple[tuple[str, str], ...] = ()  # the others, and why it does not

    @classmethod
    def of(cls, fields: dict[str, Any]) -> PlanRequest:
        operator, plan = fields["operator"], fields.get("plan") or {}
        spec = OperatorSpec.from_json(operator["spec"])
        ids = fields.get("ids")
        return cls(
            query=fields["query"],
            run=fields["run"],
            uid=fields["uid"],
            batch=fields["batch"],
            node=fields["node"],
            spec=replace(spec, partitions=fields.get("partitions", spec.partitions)),
            location=operator["location"],
            new=operator["new"],
            retain=operator["retain"],
            commit=fields.get("commit", operator["commit"]),
            stateful=fields["stateful"],
            timing=fields.get("timing", "eager"),
            watermarks=tuple(plan.get("watermarks", ())),
            others=tuple(plan.get("others", ())),
            ids=None if ids is None else tuple(ids),
            times=TimeInputs.of(operator["times"]),
            rescales=operator.get("rescales", True),
            prefetch=PrefetchSettings(**operator.get("prefetch", {})),
            early=tuple(fields.get("early", ())),
            missing=tuple(fields.get("missing", {}).items()),
        )


@dataclass(frozen=True)
class TimesRequest:
    """The event times of a batch that is about to reach an operator with operators below it."""

    query: str
    run: str
    operator: str
    batch: int
    direct_ms: list[int | None]  # the largest time of this batch by node, without another operator between
    upstream_ms: dict[str, int | None]  # watermarks of the operators below that run in the JVM


@dataclass(frozen=True)
class Base:
    """The version that a partition starts from."""

    version: int | None
    run: int | None = None
    attempt: int | None = None


@dataclass(frozen=True)
class EndedTask:
    """One finished task of a batch, with its machine and executor."""

    attempt: int
    machine: str
    executor: str
    summary: Summary

    @classmethod
    def of(cls, fields: dict[str, Any]) -> EndedTask:
        summary = {name: value for name, value in fields["summary"].items() if name != "state_id"}
        return cls(fields["attempt"], fields["machine"], fields["executor"], Summary.of(summary))


def base_by_id(state_id: str, partition: int) -> Base:
    """The base of a partition, by its id in Spark's commit log."""
    match = _STATE_ID.fullmatch(state_id)
    if match is None:
        raise StateCorrupt(
            f"Spark's commit log names the state {state_id!r} for partition {partition}",
            hint="the checkpoint was written by another operator: restore it, or start from a new one",
        )
    return Base(int(match[1]), int(match[2]))


def newest_base(bases: Sequence[Base]) -> Base:
    """The base of every partition of a new layout: the version that all old partitions have."""
    return max(bases, key=lambda base: (-1 if base.version is None else base.version, base.run or 0))
