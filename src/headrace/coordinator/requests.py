"""How a task begins a batch, the answers to it and to a planned batch, and what observers get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.coordinator.planned import Base
from headrace.coordinator.progress import BatchProgress
from headrace.plan.frontier import UNTIMED, TimeInputs
from headrace.plan.lookahead import NO_PREFETCH, PrefetchSettings
from headrace.plan.spec import OperatorSpec


@dataclass(frozen=True)
class BeginRequest:
    """A task's request to begin a batch. `partition` is None when the task has no rows."""

    query: str
    run: str
    uid: str
    batch: int
    stage: int
    task: int
    attempt: int
    partition: int | None
    machine: str
    spec: OperatorSpec
    location: str | None
    new: bool
    avoid: str | None = None
    rescales: bool = True  # whether the number of partitions was set
    times: TimeInputs = UNTIMED
    prefetch: PrefetchSettings = NO_PREFETCH

    @classmethod
    def of(cls, fields: dict[str, Any]) -> BeginRequest:
        spec, times = OperatorSpec.from_json(fields["spec"]), TimeInputs.of(fields["times"])
        prefetch = PrefetchSettings(**fields.get("prefetch", {}))
        return cls(**{**fields, "spec": spec, "times": times, "prefetch": prefetch})


@dataclass(frozen=True)
class Begun:
    base: int | None
    location: str
    partitions: list[int]
    base_attempts: dict[int, int]  # the newest attempt of this start that began the base, by partition
    seen_ms: list[int | None]  # the event time that counts for the batch, by watermark node
    placed: dict[str, Any] = field(default_factory=dict)  # the layout, as tickets have it
    timestamp_ms: int = 0  # Spark's time of the batch; read for processors only
    work: dict[str, Any] | None = None  # of a processor, over the state that there is


@dataclass(frozen=True)
class Planned:
    """A batch that Spark is about to run."""

    location: str
    bases: list[Base]  # by partition
    timing: str
    placed: dict[str, Any]  # the layout, as tickets have it


@dataclass(frozen=True)
class OperatorAccount:
    """What an observer may read about an operator: what it is, where its state is, its last batches."""

    run: str
    spec: OperatorSpec
    location: str
    checkpoint: str
    batches: list[BatchProgress]
