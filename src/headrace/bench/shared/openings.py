"""What a start reads to open three operators with eight partitions each: with little state, with much."""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.bench.common import report
from headrace.bench.shared.host import QUERY, Far
from headrace.bench.shared.lab import Lab, Size, State
from headrace.bench.shared.requests import logged
from headrace.bench.shared.rows import spec_of
from headrace.plan.partitions.layouts import first_layout

OPERATORS = 3
PARTITIONS = 8


def count_openings(lab: Lab, size: Size) -> dict[str, Any]:
    """Objects that are read, and requests by kind, for both sizes."""
    factors = {"small": 1, "large": size.factor}
    return {"opening": {name: _count(lab, name, size.opened_keys * of) for name, of in factors.items()}}


def _count(lab: Lab, name: str, keys: int) -> dict[str, Any]:
    states = _loaded(lab, f"opened-{name}", keys)
    log = lab.folder / f"{name}.requests"
    with lab.hosts(states, Far(0.0, log=str(log))) as hosts:
        for host, state in zip(hosts, states, strict=True):
            host.visit(state.batches)
    requests = list(logged(log))
    read = {request.name for request in requests if request.operation in ("get", "range")}
    return {
        "state_mb": report.mb(states[0].nbytes),
        "objects_read": len(read),
        "segments_read": sum("/segments/" in each for each in read),
        "requests": dict(Counter(request.operation for request in requests)),
    }


def _loaded(lab: Lab, folder: str, keys: int) -> list[State]:
    """States of one query, with the roll-up that its host leaves behind."""
    specs = [spec_of(f"totals{number}", PARTITIONS) for number in range(OPERATORS)]
    layouts = first_layout(PARTITIONS)
    states = [State(lab.folder / folder, keys, spec, layouts) for spec in specs]
    with lab.hosts(states, Far(0.0)) as hosts:
        for host, state in zip(hosts, states, strict=True):
            state.load(host)
        hosts[0].service.ended([QUERY])
    return states
