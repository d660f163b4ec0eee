"""From an operator's work to the code that runs it; a new kind of work is one line here."""

from __future__ import annotations

from headrace.operators.cells import CellKeeping
from headrace.operators.dedup import Deduping
from headrace.operators.distinct import DistinctGroups
from headrace.operators.fold import Folding
from headrace.operators.grouped import GroupedRows
from headrace.operators.holistic import HolisticComputation
from headrace.operators.implementation import Implementation
from headrace.operators.keep import Keeping
from headrace.operators.pairs import Pairing
from headrace.operators.retracting import RetractingGroups
from headrace.operators.top import Topping
from headrace.operators.window_join import join_of
from headrace.plan.spec import Fold, Grouped, Holistic, OperatorSpec, WindowJoin, Work
from headrace.plan.work.cells import Cells
from headrace.plan.work.changes.distinct import Distinct
from headrace.plan.work.changes.retracting import Retracting
from headrace.plan.work.changes.top import Top
from headrace.plan.work.dedup import Dedup
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.store.rows.groups import Computation
from headrace.store.rows.kept_layout import KeptLayout

IMPLEMENTATIONS: dict[type[Work], Implementation] = {
    Fold: Folding(),
    Holistic: Keeping(HolisticComputation),
    WindowJoin: Keeping(join_of),
    Grouped: Keeping(GroupedRows),
    Cells: CellKeeping(),
    Dedup: Deduping(),
    Retracting: RetractingGroups(),
    Top: Topping(),
    StreamJoin: Pairing(),
    Distinct: DistinctGroups(),
}


def implementation_of(spec: OperatorSpec) -> Implementation:
    return IMPLEMENTATIONS[type(spec.work)]


def computation_of(layout: KeptLayout) -> Computation:
    """The computation of one epoch of the layout's operator."""
    return implementation_of(layout.spec).computation(layout)
