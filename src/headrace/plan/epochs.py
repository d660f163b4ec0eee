"""Which version a batch starts from: pure decisions over the batches that an operator has begun.

Batch ids may skip (Spark prunes an operator whose inputs are empty), so the base of a batch is the
largest batch begun before it, not its number less one. Spark replays a batch with the same id until it is
committed, so what was begun before batch N is committed when N begins.
"""

from __future__ import annotations

from collections.abc import Sequence

HISTORY = 200


def base_of(begun: Sequence[int], batch: int) -> int | None:
    """The version that `batch` starts from; None when nothing was begun before it."""
    return max((number for number in begun if number < batch), default=None)


def begin_batch(begun: Sequence[int], batch: int, history: int = HISTORY) -> list[int]:
    """`begun` after `batch` began. A batch below the newest is a rollback: what was above is forgotten.

    The first batch stays for good: a step back beyond the history then requests a version that is gone,
    and does not pass for a query without state.
    """
    kept = [*sorted(number for number in set(begun) if number < batch), batch]
    return kept if len(kept) <= history else [kept[0], *kept[1 - history :]]
