"""Runs aggregates of distinct values."""

from __future__ import annotations

from headrace.operators.implementation import Opening
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind
from headrace.store.distinct.store import DistinctStore, distinct_kinds
from headrace.store.rows.groups import Computation
from headrace.store.rows.kept_layout import KeptLayout


class DistinctGroups:
    """An `Implementation` whose store has the values of groups beside the groups."""

    def kinds(self, spec: OperatorSpec, store: StoreName) -> tuple[FileKind, ...]:
        return distinct_kinds(spec)

    def open(self, opening: Opening) -> Store:
        place = (opening.spec, opening.budget, opening.files, opening.segments, opening.watermark_us)
        return DistinctStore(*place, opening.known_keys)

    def computation(self, layout: KeptLayout) -> Computation:
        raise TypeError(f"operator {layout.spec.name} keeps no rows, so no groups are computed from them")
