"""State of a query as tables, read from its checkpoint without Spark: `inspect.open(checkpoint)`."""

from __future__ import annotations

from pathlib import Path

from headrace.inspect.state import State
from headrace.inspect.table import StateTable

__all__ = ["State", "StateTable", "open"]


def open(checkpoint: str | Path) -> State:
    """Open the state behind a checkpoint: a path, `file:`, `s3://` or `az://` address.

    Examples
    --------
    >>> import headrace.inspect
    >>> with headrace.inspect.open(checkpoint) as state:
    ...     print(state.operators, state.table("totals").count())
    ['totals'] 3
    """
    return State(checkpoint)
