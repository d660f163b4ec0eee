"""Spark's filters as what state can be read by. Pure: filters in, `Selection` out.

A filter that is taken may be weaker than what the user wrote, never stronger: Spark evaluates it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from headrace.errors import QueryError
from headrace.inspect.forms import table_spec
from headrace.inspect.selection import Selection, micros, selected_keys
from headrace.inspect.shown.columns import EVENT_TIME, SLICE, WINDOW
from headrace.inspect.table import StateTable

_STARTS = ((WINDOW, "start"), (SLICE, "start"))


def pushed(table: StateTable, filters: Sequence[Filter]) -> Selection:
    """What all filters together leave to be read."""
    selection = table.selection
    for one in filters:
        selection = _bounded(table, _keyed(selection, one), one)
    return selection


def _keyed(selection: Selection, one: Filter) -> Selection:
    if not isinstance(one, EqualTo | EqualNullSafe | In | IsNull):
        return selection
    values = one.value if isinstance(one, In) else (None if isinstance(one, IsNull) else one.value,)
    name = ".".join(one.attribute)
    try:
        ((field, allowed),) = selected_keys(table_spec(selection.spec), {name: tuple(values)})
    except QueryError:  # of another column, or values of another type: Spark evaluates it
        return selection
    before = dict(selection.keys)
    kept = tuple(value for value in allowed if value in before.get(field, allowed))
    return replace(selection, keys=tuple({**before, field: kept}.items()))


def _bounded(table: StateTable, selection: Selection, one: Filter) -> Selection:
    if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return selection
    by_time = table.spec.work.keeps_rows and not _session(table)
    starts = {*_STARTS, (EVENT_TIME,)} if by_time else set(_STARTS)
    at = _micros(one.value)
    if tuple(one.attribute) not in starts or at is None:
        return selection
    if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        low = at if selection.from_us is None else max(at, selection.from_us)
        selection = replace(selection, from_us=low)
    if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
        high = at + 1 if selection.before_us is None else min(at + 1, selection.before_us)
        selection = replace(selection, before_us=high)
    return selection


def _session(table: StateTable) -> bool:
    return table.spec.window is not None and table.spec.window.session


def _micros(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    return micros(value if value.tzinfo else value.astimezone(UTC))
