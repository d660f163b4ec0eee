"""Runs dedup: its store returns the rows that pass."""

from __future__ import annotations

from headrace.operators.implementation import Opening
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.row.layout import RowLayout
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind
from headrace.store.dedup.store import DedupStore
from headrace.store.rows.groups import Computation
from headrace.store.rows.kept_layout import KeptLayout


class Deduping:
    """An `Implementation` whose store keeps one time per key."""

    def kinds(self, spec: OperatorSpec, store: StoreName) -> tuple[FileKind, ...]:
        return (FileKind("rows", RowLayout(spec)),)

    def open(self, opening: Opening) -> Store:
        place = (opening.spec, opening.budget, opening.files, opening.segments, opening.watermark_us)
        return DedupStore(*place, opening.known_keys)

    def computation(self, layout: KeptLayout) -> Computation:
        raise TypeError(f"operator {layout.spec.name} keeps no rows, so no groups are computed from them")
