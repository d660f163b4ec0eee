"""Groups of kept rows: which rows belong together, and what an operator makes of whole groups.

A chunk of kept rows holds whole groups: all rows of a key in one window. Only where a window is one group
(`is_one_group`) it may come in several chunks. `computation_of` computes their results; every store that
keeps rows ends there, so results do not depend on the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernels.groups.group import group_rows
from headrace.plan.spec import WINDOW_END, WINDOW_START, OperatorSpec
from headrace.plan.types import arrow_type
from headrace.row.arrays import I64, Flags
from headrace.row.run import Run
from headrace.store.rows.kept_layout import KeptLayout, key_array, subset


@dataclass(frozen=True)
class Groups:
    """Which group each row is of, each group's first row, and its window in microseconds."""

    of_row: I64
    firsts: I64
    starts_us: I64
    ends_us: I64

    def __len__(self) -> int:
        return len(self.firsts)


# Results of a chunk of whole groups, as batches of the operator's output schema.
Computation = Callable[[Run, Groups], Iterator[pa.RecordBatch]]

# The computation of one epoch of a layout's operator; `operators.registry` has it.
Computations = Callable[[KeptLayout], Computation]


def is_one_group(spec: OperatorSpec) -> bool:
    """Whether all rows of a window go to one call of a function, so that nobody else has to hold them."""
    return spec.work.returns_rows and not spec.keys


def groups_of(
    layout: KeptLayout, rows: Run, starts_us: int | I64, ends_us: int | I64, fresh: Flags | None = None
) -> tuple[Run, Groups]:
    """Rows that are ordered by hash, and their groups; bounds are those of all rows, or of each row.

    With `fresh`, only groups that have a fresh row are left.
    """
    starts = starts_us if isinstance(starts_us, np.ndarray) else np.empty(0, np.int64)
    variable = np.zeros(layout.key_width, np.bool_)
    variable[list(layout.variable_key_words)] = True
    of_row, firsts = group_rows(rows.order, rows.words, rows.heap, starts, variable)
    if fresh is not None:
        wanted = np.zeros(len(firsts), np.bool_)
        wanted[of_row[fresh]] = True
        if not wanted.all():
            mask = wanted[of_row]
            cut = [at[mask] if isinstance(at, np.ndarray) else at for at in (starts_us, ends_us)]
            return groups_of(layout, subset(layout, rows, mask), cut[0], cut[1])
    return rows, Groups(of_row, firsts, _bounds(starts_us, firsts), _bounds(ends_us, firsts))


def _bounds(said_us: int | I64, firsts: I64) -> I64:
    if isinstance(said_us, np.ndarray):
        return said_us[firsts]
    return np.full(len(firsts), said_us, np.int64)


def key_columns(layout: KeptLayout, rows: Run, groups: Groups) -> list[pa.Array]:
    """Keys and window bounds of each group, as output columns."""
    firsts = subset(layout, rows, groups.firsts)
    columns = [key_array(slot, firsts) for slot in layout.keys]
    if layout.spec.window:
        columns += [instants(groups.starts_us), instants(groups.ends_us)]
    return columns


def instants(times_us: I64) -> pa.Array:
    return pa.array(times_us, pa.int64()).view(arrow_type("timestamp"))


def key_names(spec: OperatorSpec) -> list[str]:
    return [field.name for field in spec.keys] + ([WINDOW_START, WINDOW_END] if spec.window else [])
