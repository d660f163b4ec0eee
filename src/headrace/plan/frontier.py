"""Event time: pure decisions over the largest event times that watermark nodes have seen.

A frontier is the largest event time (ms) of a node over all batches, None while it has seen nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TimeInputs:
    """Where the event time of an operator comes from.

    A node may feed the operator directly, through another operator, or both ways. `upstream` are the
    operators below that have a watermark; each may still emit rows that are `hold_ms` older than it.
    """

    nodes: tuple[str, ...] = ()  # ids of the watermark nodes below, in the order of their delays
    direct: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    upstream: tuple[tuple[str, int], ...] = ()  # name, hold_ms

    @classmethod
    def of(cls, fields: dict[str, Any]) -> TimeInputs:
        """The inputs, as they cross the wire."""
        upstream = tuple((name, hold_ms) for name, hold_ms in fields["upstream"])
        nodes, direct, through = (tuple(fields[name]) for name in ("nodes", "direct", "through"))
        return cls(nodes, direct, through, upstream)


UNTIMED = TimeInputs()


def advance(frontiers: Sequence[int | None], seen: Sequence[int | None]) -> list[int | None]:
    """The frontiers after a batch that saw `seen`; a frontier never goes back."""
    if len(frontiers) != len(seen):
        raise ValueError(f"{len(seen)} event times for {len(frontiers)} watermark nodes")
    return [_later(old, new) for old, new in zip(frontiers, seen, strict=True)]


def _later(old: int | None, new: int | None) -> int | None:
    if old is None or new is None:
        return new if old is None else old
    return max(old, new)


def watermark_ms(frontiers: Sequence[int | None], delays: Sequence[int]) -> int | None:
    """The least of frontier minus delay over all nodes; None while any node has seen nothing."""
    bounds = [None if at is None else at - delay for at, delay in zip(frontiers, delays, strict=True)]
    known = [bound for bound in bounds if bound is not None]
    return min(known) if known and len(known) == len(bounds) else None


def held_back(
    inputs: TimeInputs,
    delays: Sequence[int],
    direct_ms: Sequence[int | None],
    upstream_ms: Collection[int | None],
) -> list[int | None]:
    """The event time that counts for each node, so that the watermark stays behind all upstream operators.

    `direct_ms` is the largest time that came through each node directly. `upstream_ms` are the watermarks
    of the upstream operators, each less its hold. What is not known yet holds everything back.
    """
    bound = None if None in upstream_ms else min((at for at in upstream_ms if at is not None), default=None)
    times = []
    for node, delay, seen in zip(inputs.nodes, delays, direct_ms, strict=True):
        paths = [seen] if node in inputs.direct else []
        if node in inputs.through:
            paths.append(None if bound is None else bound + delay)
        times.append(None if None in paths else min((at for at in paths if at is not None), default=None))
    return times
