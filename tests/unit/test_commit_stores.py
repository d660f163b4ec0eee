"""Protects every store behind the commit pipeline: what is logged and sealed again gives what was there.

The same batches run once with synchronous commits in one host; the others must give the same. In one of
them every host dies right after its first acknowledgement, so that every version is sealed from the log.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.blob.locations import Locations
from headrace.checkpoint.steps import unobserved
from headrace.host.state.service import PartitionService
from headrace.host.state.upkeep import Upkeep
from headrace.plan.options import CommitMode
from headrace.plan.spec import OperatorSpec
from headrace.testing.clock import ManualClock
from headrace.testing.contracts.store_contract import (
    LATE_SLIDE,
    SECOND,
    SESSION,
    SLIDE,
    TINY,
    TUMBLE,
    folding,
    keeping,
)
from headrace.testing.contracts.store_model import Row, batch_of, rows_of
from headrace.testing.simulation.stepped_crew import SteppedExecutor, SteppedJobs, stepped_crew
from headrace.wire.contract import Ticket

BATCHES = 6
OPERATORS = {
    "running": folding(None, "changes"),
    "tumbling": folding(TUMBLE, "final"),
    "sliding": folding(SLIDE, "final"),
    "sliding late": folding(LATE_SLIDE, "final"),
    "session": folding(SESSION, "final"),
    "aar": keeping(TUMBLE),
    "aur": keeping(SESSION),
    "memory": replace(folding(TUMBLE, "final"), store="memory"),
    "rocksdb": replace(folding(TUMBLE, "final"), store="rocksdb"),
}


class Host:
    def __init__(self, folder: Path, share_bytes: int) -> None:
        self._folder = folder
        self.jobs = SteppedJobs(random.Random(1))
        crew = stepped_crew(self.jobs, ManualClock(), unobserved)
        locations = Locations(folder / "local")
        self.service = PartitionService(
            1, locations, crew, Upkeep(SteppedExecutor(self.jobs)), share_min=share_bytes
        )

    def run(
        self, spec: OperatorSpec, number: int, rows: list[Row], mode: CommitMode
    ) -> list[tuple[Any, ...]]:
        base = number - 1 if number else None
        where = str(self._folder / "shared")
        ticket = Ticket("start", "q", spec, 0, number, base, number + 1, where, 3, mode)
        transaction = self.service.begin(ticket)
        for start in range(0, len(rows), 64):
            transaction.apply(batch_of(spec, rows[start : start + 64]))
        seen = [max(row.time_us for row in rows) // 1000 - 8000] if spec.delays_ms else []
        results = rows_of(transaction.finish(seen))
        transaction.commit()
        return results


def rows_at(number: int) -> list[Row]:
    draw = random.Random(number)
    now = number * 7 * SECOND
    return [
        Row(draw.randrange(40), max(0, now + draw.randrange(-9, 9) * SECOND), draw.choice([None, 1, 2, 3]))
        for _ in range(150)
    ]


def results(
    spec: OperatorSpec, mode: CommitMode, host_at: Callable[[int], Host], between: Callable[[Host], None]
) -> list[list[tuple[Any, ...]]]:
    outputs = []
    for number in range(BATCHES):
        host = host_at(number)
        outputs.append(host.run(spec, number, rows_at(number), mode))
        between(host)
    return outputs


@pytest.mark.parametrize("share_bytes", [TINY, 64 << 20], ids=["tiny", "ample"])
@pytest.mark.parametrize("name", OPERATORS)
def test_every_store_is_the_same_behind_the_batches(tmp_path: Path, name: str, share_bytes: int) -> None:
    spec = OPERATORS[name]
    share = 64 << 20 if name == "memory" else share_bytes
    alone = Host(tmp_path / "sync", share)
    wanted = results(spec, "sync", lambda number: alone, lambda host: host.jobs.drain())
    assert any(wanted)
    behind = Host(tmp_path / "async", share)
    assert results(spec, "async", lambda number: behind, lambda host: host.jobs.drain()) == wanted
    dying = results(spec, "async", lambda number: Host(tmp_path / "dying", share), lambda host: None)
    assert dying == wanted
