"""What a reader selects of a table: some keys, some windows. Pure functions over wire columns.

Keys that are all given are looked up by their hash; any given key column filters rows. Bounds are of the
start of a row's window, slice or session, and of the event time of kept rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, reduce
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import QueryError
from headrace.plan.columns import own_bounds
from headrace.plan.spec import TIME, WINDOW_START, OperatorSpec
from headrace.plan.types import arrow_type
from headrace.plan.window import kind_of
from headrace.row.arrays import U64
from headrace.store.rows.hashing import hashes_of, normalised

Instant = datetime | int  # an instant (UTC where it has no zone), or microseconds since 1970
LOOKUPS_MAX = 10_000  # of more keys than that, all rows are read and filtered


@dataclass(frozen=True)
class Selection:
    """Values of key fields, by the fields' wire names, and bounds `[from_us, before_us)`."""

    spec: OperatorSpec  # the operator itself, whose keys are hashed
    keys: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    from_us: int | None = None
    before_us: int | None = None

    @cached_property
    def hashes(self) -> U64 | None:
        """The hashes to look up, ordered and distinct; None where rows must be filtered instead."""
        given = dict(self.keys)
        fields = self.spec.keys
        if not fields or not {field.name for field in fields} <= set(given):
            return None
        if prod(len(given[field.name]) for field in fields) > LOOKUPS_MAX:
            return None
        if self.spec.work.has_sides and any(None in values for values in given.values()):
            return None  # rows of null keys meet no other, and are spread over all partitions
        rows = list(itertools.product(*(given[field.name] for field in fields)))
        columns = [
            (
                normalised(pa.array([row[at] for row in rows], arrow_type(field.type)), field.type),
                field.type,
            )
            for at, field in enumerate(fields)
        ]
        return np.unique(hashes_of(columns, len(rows)))

    def may_hold(self, spec: OperatorSpec, section: int, *, by_time: bool) -> bool:
        """Whether a section of state can have a selected row."""
        window = spec.window
        if window is None or kind_of(window) != "fixed":
            return True
        width = window.every_us if by_time else window.slice_us
        first, last = section, section + width - 1 if spec.work.keeps_rows else section
        too_late = self.before_us is not None and first >= self.before_us
        return not too_late and not (self.from_us is not None and last < self.from_us)

    def kept(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The selected rows of a batch, if there are any."""
        masks = [_among(batch.column(name), values) for name, values in self.keys]
        if self.from_us is not None or self.before_us is not None:
            masks += self._within(batch)
        if masks:
            batch = batch.filter(reduce(pc.and_, masks))
        if batch.num_rows:
            yield batch

    def _within(self, batch: pa.RecordBatch) -> list[pa.Array]:
        starts = own_bounds(self.spec.keys) or (WINDOW_START,)
        name = starts[0] if starts[0] in batch.schema.names else TIME
        if name not in batch.schema.names:
            return []
        times = batch.column(name).cast(pa.int64())
        lower = [] if self.from_us is None else [pc.greater_equal(times, self.from_us)]
        return lower + ([] if self.before_us is None else [pc.less(times, self.before_us)])


def _among(column: pa.Array, values: Sequence[Any]) -> pa.Array:
    allowed = pa.array(list(values), column.type)
    masks = [pc.fill_null(pc.is_in(column, value_set=allowed.drop_null()), False)]
    if allowed.null_count:
        masks.append(pc.is_null(column))
    if pa.types.is_floating(column.type):
        has_nan = pc.any(pc.is_nan(allowed)).as_py()
        masks += [pc.fill_null(pc.is_nan(column), False)] if has_nan else []
    return reduce(pc.or_, masks)


def selected_keys(
    spec: OperatorSpec, keys: Mapping[str, Any] | None
) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The user's `{column: value or values}` by wire names; raises for a column that is not a key."""
    by_label = {field.label or field.name: field for field in spec.keys}
    conditions = []
    for name, given in (keys or {}).items():
        field = by_label.get(name)
        if field is None:
            known = ", ".join(by_label) or "none: the operator has no keys"
            raise QueryError(f"{name} is not a key of operator {spec.name}", hint=f"its keys are {known}")
        values = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
        try:
            pa.array(list(values), arrow_type(field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise QueryError(
                f"key {name} of operator {spec.name} is {field.type}: {error}",
                hint="give values of that type",
            ) from None
        conditions.append((field.name, values))
    return tuple(conditions)


def micros(instant: Instant | None) -> int | None:
    """Microseconds since 1970."""
    if instant is None or isinstance(instant, int):
        return instant
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
