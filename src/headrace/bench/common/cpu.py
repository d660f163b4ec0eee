"""CPU time of a benchmark: this process, all processes below it, and the state hosts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def used_s(hosts: Iterable[int] = ()) -> float:
    """CPU seconds so far, with those of ended children that their parents have waited for."""
    stats = {pid: stat for pid in _pids() if (stat := _stat(pid)) is not None}
    tree = {os.getpid(), *hosts}
    grown = True
    while grown:
        below = {pid for pid, stat in stats.items() if int(stat[1]) in tree} - tree
        tree |= below
        grown = bool(below)
    ticks = sum(int(value) for pid in tree if pid in stats for value in stats[pid][11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields after the process's name: state, parent, …; None if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()
