"""The stateful task of an operator: its plan, and the function that Spark's Python worker runs.

The plan is part of Spark's closure. Imports stay light: no Numba, no pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

import pyarrow as pa

from headrace.host.process.settings import HostSettings
from headrace.plan.frontier import UNTIMED, TimeInputs
from headrace.plan.lookahead import NO_PREFETCH, PrefetchSettings
from headrace.plan.options import COMMIT_MODES, CommitMode, HostPer, Options
from headrace.plan.spec import OperatorSpec

if TYPE_CHECKING:
    from headrace.spark.processors.run import WorkerPlan

SERVICE = "headrace.host.state.service:open_service"

RowBatches = Iterator[pa.RecordBatch]
Task = Callable[[RowBatches], RowBatches]
Then = Callable[[RowBatches], RowBatches]  # consumes one partition's results in the worker


@dataclass(frozen=True)
class TaskPlan:
    """All settings of an operator's task; part of Spark's closure."""

    spec: OperatorSpec
    uid: str  # id of the built operator; separates two operators of one name
    coordinator: str
    secret: str
    application: str
    local: str
    memory_bytes: int
    retain: int
    location: str | None = None  # None: beside the checkpoint
    new: bool = False
    times: TimeInputs = UNTIMED
    host_per: HostPer = "machine"
    tcp: bool = False
    service: str = SERVICE
    warm: bool = True
    then: Then | None = None
    commit: CommitMode = "sync"
    processor: WorkerPlan | None = None
    rescales: bool = True  # whether the number of partitions was set
    prefetch: PrefetchSettings = NO_PREFETCH

    def __repr__(self) -> str:
        return f"TaskPlan({self.spec.name})"


class Reachable(Protocol):
    """The coordinator's attributes that a task needs."""

    address: str
    secret: str
    application: str
    local_master: bool


def stateful_task(
    spec: OperatorSpec,
    uid: str,
    times: TimeInputs,
    coordinator: Reachable,
    options: Options,
    then: Then | None = None,
    processor: WorkerPlan | None = None,
) -> Task:
    """The function of one operator for `mapInArrow`."""
    return task_of(
        TaskPlan(
            spec=spec,
            uid=uid,
            coordinator=coordinator.address,
            secret=coordinator.secret,
            application=coordinator.application,
            local=options.local,
            memory_bytes=options.memory_bytes,
            retain=options.retain,
            location=options.location,
            new=options.new,
            times=times,
            host_per=options.host_per,
            tcp=not coordinator.local_master,
            then=then,
            commit=options.commit,
            service=service_of(options),
            prefetch=PrefetchSettings(options.prefetch, options.waste),
            processor=processor,
            rescales=options.rescales,
        )
    )


def service_of(options: Options) -> str:
    """The state service of a host, with the settings that are the host's."""
    chosen = {
        "fsync": "true" if options.log_fsync else "",
        "cache": options.cache,
        "disk": options.cache_disk,
        "fill": options.cache_fill,
        "compactors": options.compactors if options.compaction == "remote" else "",
        "compaction_secret": options.compaction_secret if options.compaction == "remote" else "",
    }
    standard = {"cache": "timestamp", "fill": "ranges"}
    arguments = "&".join(
        f"{name}={quote(value)}" for name, value in chosen.items() if value != standard.get(name, "")
    )
    return f"{SERVICE}?{arguments}" if arguments else SERVICE


def task_of(plan: TaskPlan) -> Task:
    """The task as a function, named after the operator: Spark prints the name in plans."""

    def evaluate(batches: RowBatches) -> RowBatches:
        from headrace.spark.bridge.worker import sparing
        from headrace.spark.task.evaluation import Evaluation, current_place
        from headrace.spark.task.task import as_started

        return sparing(Evaluation(as_started(plan), current_place(plan.spec.name)).run(batches))

    evaluate.__name__ = f"headrace_{plan.spec.name}"
    evaluate.plan = plan  # type: ignore[attr-defined]
    return evaluate


def shipped(task: Task) -> Task:
    """The task in a form that a worker without this package can load, and answer with one sentence."""
    from pyspark.cloudpickle import dumps

    packed, name = dumps(plan_of(task)), task.__name__

    def evaluate(batches):  # type: ignore[no-untyped-def]
        import pickle
        import socket
        import sys

        try:
            from headrace.spark.task.task import task_of
        except ImportError as error:
            raise RuntimeError(
                f"{name}: Python {sys.executable} on {socket.gethostname()} lacks Headrace ({error}). "
                "Install it there (pip install headrace), or ship a packed environment with "
                "spark-submit --archives and set PYSPARK_PYTHON to it."
            ) from None
        return task_of(pickle.loads(packed))(batches)

    evaluate.__name__ = name
    return evaluate


def plan_of(task: Task) -> TaskPlan:
    """The plan of a task that `task_of` made."""
    plan: TaskPlan = task.plan  # type: ignore[attr-defined]
    return plan


def host_settings(plan: TaskPlan, machine: str) -> HostSettings:
    """The settings of a machine's host for the operator's application."""
    return HostSettings(
        application=plan.application,
        machine=machine,
        coordinator=plan.coordinator,
        secret=plan.secret,
        local=plan.local,
        memory_bytes=plan.memory_bytes,
        tcp=plan.tcp,
        service=plan.service,
        warm=plan.warm,
    )


def as_started(plan: TaskPlan) -> TaskPlan:
    """The plan with the commit mode of the query's start, which may differ from the mode at planning.

    A query has its own copy of the Spark session's settings. Spark passes them to tasks as local
    properties.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    requested = None if context is None else context.getLocalProperty("spark.headrace.commit")
    commit = next((mode for mode in COMMIT_MODES if mode == requested), plan.commit)
    return replace(plan, commit=commit)
