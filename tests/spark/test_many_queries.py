"""Protects an application that starts queries without end: after 200 of them its host has the memory, the
descriptors and the files that it had after five.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from streaming_case import Case

import headrace as hr

pytestmark = [pytest.mark.spark, pytest.mark.long]

MANY = 200
MEMORY_SLACK = 48 << 20  # of the allocator, and of what each query compiles in the interpreter


def figures(case: Case) -> tuple[int, int, int]:
    """Resident bytes and descriptors of the host, and files and folders in its local directory."""
    await_rest(case)
    (host,) = case.coordinator.hosts().values()
    pages = int(Path(f"/proc/{host.pid}/statm").read_text().split()[1])
    local = Path(str(case.spark.conf.get("spark.headrace.state.local")))
    files = [path for path in local.rglob("*") if "copies" not in path.parts]
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{host.pid}/fd")), len(files)


def await_rest(case: Case) -> None:
    """Waits until the host has freed the partitions of all ended queries."""
    deadline = time.monotonic() + 60
    while any(host.status.get("partitions") for host in case.coordinator.hosts().values()):
        assert time.monotonic() < deadline, "ended queries have partitions"
        time.sleep(0.2)


def test_after_two_hundred_queries_as_after_five(case: Case, tmp_path: Path) -> None:
    case.feed(("a", 0, 1.0), ("b", 1, 2.0))

    def run(number: int) -> None:
        mine = replace(case, checkpoint=tmp_path / f"ck-{number}")
        writer = mine.totals().writeStream.format("noop").option("checkpointLocation", str(mine.checkpoint))
        query = hr.start(writer.trigger(availableNow=True))
        query.awaitTermination()
        hr.stop(query)

    for number in range(5):
        run(number)
    memory, descriptors, files = figures(case)
    for number in range(5, MANY):
        run(number)
    later = figures(case)
    assert later[0] <= memory + MEMORY_SLACK
    assert later[1] <= descriptors + 5
    assert later[2] <= files + 5
