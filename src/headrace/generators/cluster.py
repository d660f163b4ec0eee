"""Task events (`TaskEvents`), shaped after Google's cluster trace.

A job begins every `EVENTS_PER_JOB` events. An event belongs to one of the last `JOBS_ALIVE` jobs, mostly to
a young one. A job keeps its user, category (scheduling class) and priority; its tasks run on any machine.
Resources are thousandths of a machine.

As text an event is a line of 65 bytes with 11 commas. Its fields are: time in seconds since 1970
(10), job (10), task (5), machine (5), event type (1), user (4), category (1), priority (2), cpu, ram, disk
(5 each, three decimals), constraints (1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.generators.nexmark.draws import I64, Draws
from headrace.generators.records.lines import Bytes, digits
from headrace.generators.records.records import TIME, Kind, Numbered

EVENTS_PER_JOB, JOBS_ALIVE = 50, 2000
FIRST_JOB = 3_418_309 + JOBS_ALIVE
TASKS_MAX, MACHINES, USERS = 1000, 12_500, 900
SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL = range(6)
TYPE_PERCENT = (30, 30, 4, 10, 20, 6)
CATEGORY_PERCENT = (45, 25, 20, 10)
PRIORITIES = 12

SCHEMA = pa.schema(
    [
        ("timestamp", TIME),
        ("jobId", pa.int64()),
        ("taskId", pa.int64()),
        ("machineId", pa.int64()),
        ("eventType", pa.int32()),
        ("userId", pa.int32()),
        ("category", pa.int32()),
        ("priority", pa.int32()),
        ("cpu", pa.float32()),
        ("ram", pa.float32()),
        ("disk", pa.float32()),
        ("constraints", pa.int32()),
    ]
)

_AGE, _TASK, _MACHINE, _TYPE, _CPU, _RAM, _DISK, _CONSTRAINED = range(2, 10)
_USER, _CATEGORY, _PRIORITY = range(2, 5)


@dataclass(frozen=True)
class Events:
    """The columns as integers, in the order of the schema without its time; resources in thousandths."""

    job: I64
    task: I64
    machine: I64
    type: I64
    user: I64
    category: I64
    priority: I64
    cpu: I64
    ram: I64
    disk: I64
    constraints: I64


def events(some: Numbered) -> Events:
    """The columns of the given events."""
    draws, newest = some.draws, some.numbers // EVENTS_PER_JOB
    job = FIRST_JOB + newest - _skewed(draws, _AGE, JOBS_ALIVE)
    own = Draws.of(some.options.traffic.seed + 1, job)
    return Events(
        job=job,
        task=_skewed(draws, _TASK, TASKS_MAX),
        machine=draws.below(_MACHINE, MACHINES),
        type=_choice(draws, _TYPE, TYPE_PERCENT),
        user=own.below(_USER, USERS),
        category=_choice(own, _CATEGORY, CATEGORY_PERCENT),
        priority=own.below(_PRIORITY, PRIORITIES),
        cpu=_skewed(draws, _CPU, 500),
        ram=_skewed(draws, _RAM, 500),
        disk=_skewed(draws, _DISK, 100),
        constraints=(draws.below(_CONSTRAINED, 20) == 0).astype(np.int64),
    )


def _skewed(draws: Draws, draw: int, bound: int) -> I64:
    """Numbers from 0 to `bound - 1`, half of them in the lowest eighth. Products only, so equal on every
    machine.
    """
    unit = draws.unit(draw)
    return (unit * unit * unit * bound).astype(np.int64)


def _choice(draws: Draws, draw: int, percent: tuple[int, ...]) -> I64:
    ends: npt.NDArray[np.int64] = np.cumsum(percent)
    return np.searchsorted(ends, draws.below(draw, 100), "right").astype(np.int64)


def rows(some: Numbered) -> pa.RecordBatch:
    event = events(some)
    ids = [event.job, event.task, event.machine]
    small = [event.type, event.user, event.category, event.priority]
    resources = [event.cpu, event.ram, event.disk]
    columns = [
        some.timestamps(),
        *(pa.array(column) for column in ids),
        *(pa.array(column.astype(np.int32)) for column in small),
        *(pa.array((column / 1000).astype(np.float32)) for column in resources),
        pa.array(event.constraints.astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def fields(some: Numbered) -> list[Bytes]:
    event = events(some)
    return [
        digits(some.times_s, 10),
        digits(event.job, 10),
        digits(event.task, 5),
        digits(event.machine, 5),
        digits(event.type, 1),
        digits(event.user, 4),
        digits(event.category, 1),
        digits(event.priority, 2),
        digits(event.cpu, 5, decimals=3),
        digits(event.ram, 5, decimals=3),
        digits(event.disk, 5, decimals=3),
        digits(event.constraints, 1),
    ]


EVENTS = Kind("cluster_monitoring", SCHEMA, rows, fields)
