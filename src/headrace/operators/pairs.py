"""Runs joins without a window: their store computes the pairs of each epoch."""

from __future__ import annotations

from headrace.operators.implementation import Opening
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.store.append.bucket_store import kept_kind
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind
from headrace.store.pairs.store import HashOrder, PairStore
from headrace.store.rows.groups import Computation
from headrace.store.rows.kept_layout import KeptLayout


class Pairing:
    """An `Implementation` whose store keeps rows of both sides."""

    def kinds(self, spec: OperatorSpec, store: StoreName) -> tuple[FileKind, ...]:
        return (kept_kind(KeptLayout(spec)),)

    def open(self, opening: Opening) -> Store:
        place = (opening.spec, opening.budget, opening.files, opening.segments, opening.watermark_us)
        return PairStore(*place, HashOrder(opening.spec))

    def computation(self, layout: KeptLayout) -> Computation:
        raise TypeError(f"operator {layout.spec.name} has no windows, so no groups are computed")
