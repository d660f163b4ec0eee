"""Which machine's host owns a partition: pure decisions.

The first machine that requests a partition owns it, so that state stays in one place. A machine without a
heartbeat for `host_lost_s` loses its partitions to the next machine that requests them. A partition whose
version is in a local log only moves to no other disk. Executors of one machine use one name and share its
host.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.plan.times import TIMES


def is_lost(machine: str, heartbeats_s: Mapping[str, float], now_s: float) -> bool:
    """Whether the machine counts as lost."""
    return now_s - heartbeats_s.get(machine, float("-inf")) > TIMES.host_lost_s


def owner_of(assigned: str | None, requester: str, heartbeats_s: Mapping[str, float], now_s: float) -> str:
    """The owner of a partition after a request from machine `requester`; `assigned` is the owner so far."""
    if assigned is None or is_lost(assigned, heartbeats_s, now_s):
        return requester
    return assigned


def owner_on_disk(
    assigned: str,
    requester: str | None,
    disks: Mapping[str, str],
    heartbeats_s: Mapping[str, float],
    now_s: float,
) -> str | None:
    """The owner of a partition that is pinned to the disk of `assigned`; None while no host has the disk.

    A request from `assigned` itself comes from a task there, which starts the machine's host.
    """
    if requester == assigned or not is_lost(assigned, heartbeats_s, now_s):
        return assigned
    disk = disks.get(assigned)
    live = [name for name in disks if disks[name] == disk and not is_lost(name, heartbeats_s, now_s)]
    if disk is None or not live:
        return None
    return requester if requester in live else min(live)
