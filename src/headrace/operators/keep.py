"""Runs work that keeps its rows until their window closes and then computes whole groups."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.operators.holistic_order import settled_order
from headrace.operators.implementation import Opening
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.plan.window import kind_of
from headrace.store.append.aar import open_aar
from headrace.store.append.bucket_store import kept_kind
from headrace.store.append.range import open_range
from headrace.store.aur.store import AurStore, aur_kinds
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind
from headrace.store.rows.groups import Computation, Computations
from headrace.store.rows.kept_layout import KeptLayout
from headrace.store.settled.store import SettledStore, settled_kinds


@dataclass(frozen=True)
class Keeping:
    """An `Implementation` whose stores append rows; `computations` turns whole groups into results."""

    computations: Computations

    def kinds(self, spec: OperatorSpec, store: StoreName) -> tuple[FileKind, ...]:
        if kind_of(spec.window) == "session":
            return aur_kinds(spec)
        if kind_of(spec.window) == "settled":
            return settled_kinds(spec)
        return (kept_kind(KeptLayout(spec, hashed=store == "range")),)

    def open(self, opening: Opening) -> Store:
        spec, computations = opening.spec, self.computations
        place = (spec, opening.budget, opening.files, opening.segments, opening.watermark_us)
        if kind_of(spec.window) == "session":
            return AurStore(*place, opening.known_keys, computations)
        if kind_of(spec.window) == "settled":
            return SettledStore(*place, opening.known_keys, computations, settled_order)
        return (
            open_range(*place, computations) if opening.store == "range" else open_aar(*place, computations)
        )

    def computation(self, layout: KeptLayout) -> Computation:
        return self.computations(layout)
