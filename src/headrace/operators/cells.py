"""Runs user processors: their state is cells and reminders."""

from __future__ import annotations

from headrace.operators.implementation import Opening
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind
from headrace.store.cells.store import CellStore, cell_kinds
from headrace.store.rows.groups import Computation
from headrace.store.rows.kept_layout import KeptLayout


class CellKeeping:
    """An `Implementation` whose store is read and written by the worker."""

    def kinds(self, spec: OperatorSpec, store: StoreName) -> tuple[FileKind, ...]:
        return cell_kinds(spec)

    def open(self, opening: Opening) -> Store:
        place = (opening.spec, opening.budget, opening.files, opening.segments, opening.watermark_us)
        return CellStore(*place, opening.known_keys)

    def computation(self, layout: KeptLayout) -> Computation:
        raise TypeError(f"operator {layout.spec.name} keeps no rows, so no groups are computed from them")
