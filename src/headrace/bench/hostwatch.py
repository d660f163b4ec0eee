"""What the state hosts of a session take: resident memory, read from the processes themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def peak_bytes(pid: int) -> int:
    """The largest resident memory that a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} says nothing of its memory")


def host_peak_bytes(spark: Any) -> int:
    """The largest resident memory of any state host of this session."""
    from headrace.spark.driver import coordinator_for

    return max((peak_bytes(host.pid) for host in coordinator_for(spark).hosts().values()), default=0)
