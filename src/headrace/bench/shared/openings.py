"""What a start reads to open three operators with eight partitions each: with little state, with much."""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.bench.common import report
from headrace.bench.shared.host import Far
from headrace.bench.shared.jobs import Totals
from headrace.bench.shared.kept import Kept
from headrace.bench.shared.lab import Size
from headrace.bench.shared.requests import logged

OPERATORS = 3
PARTITIONS = 8


def count_openings(kept: Kept, size: Size) -> dict[str, Any]:
    """Objects that are read, and requests by kind, for both sizes."""
    factors = {"small": 1, "large": size.factor}
    return {"opening": {name: _count(kept, size.opened_keys * of) for name, of in factors.items()}}


def _count(kept: Kept, keys: int) -> dict[str, Any]:
    job, log = Totals.of(PARTITIONS, OPERATORS), kept.lab.new_folder()
    with kept.state("opened", job, keys, Far(0.0)) as state:  # the host that built it left a roll-up
        with kept.lab.host(state, Far(0.0, log=str(log))) as host:
            host.visit(state.batches)
        nbytes = state.nbytes
    requests = list(logged(log))
    read = {request.name for request in requests if request.operation in ("get", "range")}
    return {
        "state_mb": report.mb(nbytes),
        "objects_read": len(read),
        "segments_read": sum("/segments/" in each for each in read),
        "requests": dict(Counter(request.operation for request in requests)),
    }
