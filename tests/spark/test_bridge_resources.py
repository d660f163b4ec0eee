"""Protects executors and hosts from leaks of the JVM operator: after many tasks, finished or half read, no
Arrow buffer is allocated and no more sockets are open than before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from streaming_case import Case
from test_bridge import settings

pytestmark = pytest.mark.spark

PARTITIONS = 50
FEW, MANY = 200, 10_000  # tasks
WITHIN_S = 30.0  # far more than a closed connection needs


@pytest.fixture(autouse=True)
def _many_partitions(spark: SparkSession) -> Iterator[None]:
    with settings(spark, bridge="jvm", partitions=str(PARTITIONS)):
        yield


def sockets(pid: int) -> int:
    """The open sockets of a process."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(link).startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            continue
    return count


def jvm_of(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._gateway.jvm


def pids(case: Case) -> list[int]:
    """The JVM and the hosts."""
    jvm = int(jvm_of(case.spark).java.lang.ProcessHandle.current().pid())
    return [jvm, *(host.pid for host in case.coordinator.hosts().values())]


def allocated(spark: SparkSession) -> tuple[int, int]:
    """The bytes of Arrow buffers in the JVM, and the allocators that are open."""
    root = jvm_of(spark).org.apache.spark.sql.util.ArrowUtils.rootAllocator()
    return int(root.getAllocatedMemory()), int(root.getChildAllocators().size())


def settled(case: Case, before: dict[int, int], slack: int = 8) -> bool:
    """Whether all buffers are released and the processes have about as many sockets as before."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        more = [pid for pid, count in before.items() if sockets(pid) > count + slack]
        if not more and allocated(case.spark) == (0, 0):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


@pytest.mark.parametrize("tasks", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_finished_tasks_leave_nothing(case: Case, tasks: int) -> None:
    case.feed(("a", 0, 1.0))
    case.run(case.totals())
    before = {pid: sockets(pid) for pid in pids(case)}
    batches = tasks // PARTITIONS
    for number in range(1, batches + 1):
        case.feed((f"u{number % 7}", number, 1.0), ("a", number, 1.0))
    rows = case.run(case.totals())
    assert len(rows) == 2 * batches
    assert (batches, "a", batches + 1, batches + 1.0) in rows
    assert settled(case, before), (allocated(case.spark), before)


def test_tasks_whose_results_are_not_read_leave_nothing(case: Case) -> None:
    case.feed(*((f"u{number}", number, 1.0) for number in range(500)))
    before = {pid: sockets(pid) for pid in pids(case)}

    def glance(batch: DataFrame, _: int) -> None:
        batch.limit(1).collect()

    with settings(case.spark, partitions="3"):
        case.run(case.totals(), glance)
        case.feed(("a", 600, 1.0))
        with pytest.raises(StreamingQueryException, match="StateMissing: version 0 is missing"):
            case.run(case.totals(), glance)
    assert settled(case, before), (allocated(case.spark), before)
