"""Spark's filters as what state can be read by. Pure: filters in, `Wanted` out.

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
from headrace.inspect.columns import EVENT_TIME, SLICE, WINDOW
from headrace.inspect.rows import table_spec
from headrace.inspect.table import StateTable
from headrace.inspect.wanted import Wanted, micros, wanted_keys

_STARTS = ((WINDOW, "start"), (SLICE, "start"))


def pushed(table: StateTable, filters: Sequence[Filter]) -> Wanted:
    """What all filters together leave to be read."""
    wanted = table.wanted
    for one in filters:
        wanted = _bounded(table, _keyed(wanted, one), one)
    return wanted


def _keyed(wanted: Wanted, one: Filter) -> Wanted:
    if not isinstance(one, EqualTo | EqualNullSafe | In | IsNull):
        return wanted
    values = one.value if isinstance(one, In) else (None if isinstance(one, IsNull) else one.value,)
    name = ".".join(one.attribute)
    try:
        ((field, allowed),) = wanted_keys(table_spec(wanted.spec), {name: tuple(values)})
    except QueryError:  # of another column, or values of another type: Spark evaluates it
        return wanted
    before = dict(wanted.keys)
    kept = tuple(value for value in allowed if value in before.get(field, allowed))
    return replace(wanted, keys=tuple({**before, field: kept}.items()))


def _bounded(table: StateTable, wanted: Wanted, one: Filter) -> Wanted:
    if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return wanted
    by_time = table.spec.work.keeps_rows and not _session(table)
    starts = {*_STARTS, (EVENT_TIME,)} if by_time else set(_STARTS)
    at = _micros(one.value)
    if tuple(one.attribute) not in starts or at is None:
        return wanted
    if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        low = at if wanted.from_us is None else max(at, wanted.from_us)
        wanted = replace(wanted, from_us=low)
    if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
        high = at + 1 if wanted.before_us is None else min(at + 1, wanted.before_us)
        wanted = replace(wanted, before_us=high)
    return wanted


def _session(table: StateTable) -> bool:
    return table.spec.window is not None and table.spec.window.session


def _micros(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    return micros(value if value.tzinfo else value.astimezone(UTC))
