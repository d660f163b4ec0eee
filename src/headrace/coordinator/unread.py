"""Batches whose rows never reached an operator that was in their plan."""

from __future__ import annotations

from headrace.errors import QueryError


def left_unread(operator: str, batch: int) -> QueryError:
    """The error for a batch that a sink did not read at all: its rows are lost."""
    return QueryError(
        f"batch {batch} was left unread: its rows never reached operator {operator}",
        hint="a foreachBatch function must use every batch (write it, count it): correct it, and start "
        "from a new checkpoint; if the batch had nothing for this operator, set "
        "spark.headrace.state.new=true for one start",
    )
