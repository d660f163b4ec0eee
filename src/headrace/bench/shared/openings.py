"""What a start reads to open three operators with eight partitions each: with little state, with much."""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.bench.common import report
from headrace.bench.shared.host import Far
from headrace.bench.shared.jobs import Totals
from headrace.bench.shared.lab import Lab, Size
from headrace.bench.shared.requests import logged

OPERATORS = 3
PARTITIONS = 8


def count_openings(lab: Lab, size: Size) -> dict[str, Any]:
    """Objects that are read, and requests by kind, for both sizes."""
    factors = {"small": 1, "large": size.factor}
    return {"opening": {name: _count(lab, name, size.opened_keys * of) for name, of in factors.items()}}


def _count(lab: Lab, name: str, keys: int) -> dict[str, Any]:
    job = Totals.of(PARTITIONS, OPERATORS)
    state = lab.state(f"opened-{name}", job, keys, Far(0.0))  # its host leaves a roll-up behind
    log = lab.folder / f"{name}.requests"
    with lab.host(state, Far(0.0, log=str(log))) as host:
        host.visit(state.batches)
    requests = list(logged(log))
    read = {request.name for request in requests if request.operation in ("get", "range")}
    return {
        "state_mb": report.mb(state.nbytes),
        "objects_read": len(read),
        "segments_read": sum("/segments/" in each for each in read),
        "requests": dict(Counter(request.operation for request in requests)),
    }
