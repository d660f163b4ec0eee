"""Event time: pure decisions over the largest event times that watermark nodes have seen.

A frontier is the largest event time (ms) of a node over all batches, None while it has seen nothing.
"""

from __future__ import annotations

from collections.abc import Sequence


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
