"""Resident memory of a Spark session's state hosts, read from the processes themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def peak_bytes(pid: int) -> int:
    """The largest resident memory of a process since its start or the last `reset_peaks`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} reports no memory")


def host_peak_bytes(spark: Any) -> int:
    """The largest resident memory of any state host of this Spark session."""
    return max((peak_bytes(pid) for pid in _hosts(spark)), default=0)


def reset_peaks(spark: Any) -> None:
    """Resets the peaks of this Spark session's state hosts to their current memory."""
    for pid in _hosts(spark):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _hosts(spark: Any) -> list[int]:
    from headrace.spark.driver.driver import coordinator_for

    return [host.pid for host in coordinator_for(spark).hosts().values()]
