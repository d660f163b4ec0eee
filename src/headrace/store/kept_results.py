"""What an operator that keeps rows makes of whole groups: the same for every store."""

from __future__ import annotations

from headrace.store.holistic import HolisticComputation
from headrace.store.holistic_rows import GroupedRows
from headrace.store.join import join_of
from headrace.store.kept import KeptLayout
from headrace.store.kept_groups import Computation


def computation_of(layout: KeptLayout) -> Computation:
    """The computation of one epoch of the layout's operator."""
    if layout.spec.join is not None:
        return join_of(layout)
    return GroupedRows(layout) if layout.spec.grouped else HolisticComputation(layout)
