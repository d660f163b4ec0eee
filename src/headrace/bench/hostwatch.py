"""What the state hosts of a session take: resident memory, read from the processes themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def peak_bytes(pid: int) -> int:
    """The largest resident memory that a process had, since its start or the last `forget_peaks`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} says nothing of its memory")


def host_peak_bytes(spark: Any) -> int:
    """The largest resident memory of any state host of this session."""
    return max((peak_bytes(pid) for pid in _hosts(spark)), default=0)


def forget_peaks(spark: Any) -> None:
    """Let the peaks of this session's state hosts begin anew, from what they take now."""
    for pid in _hosts(spark):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _hosts(spark: Any) -> list[int]:
    from headrace.spark.driver import coordinator_for

    return [host.pid for host in coordinator_for(spark).hosts().values()]
