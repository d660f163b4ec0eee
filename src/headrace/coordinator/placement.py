"""Which machine's host owns a partition: pure decisions.

The first machine to ask gets a partition, and keeps it: the batch travels, the state stays. A machine
that has not been heard of for `LOST_S` loses its partitions to whoever asks next. Two executors of one
machine ask under one name, and so share its host.
"""

from __future__ import annotations

from collections.abc import Mapping

LOST_S = 8.0


def is_lost(machine: str, heard_s: Mapping[str, float], now_s: float) -> bool:
    """Whether the machine counts as gone."""
    return now_s - heard_s.get(machine, float("-inf")) > LOST_S


def owner_of(assigned: str | None, asking: str, heard_s: Mapping[str, float], now_s: float) -> str:
    """The owner of a partition that was `assigned` so far, when a task on `asking` wants it."""
    if assigned is None or is_lost(assigned, heard_s, now_s):
        return asking
    return assigned
