"""Runs folds: running values per key, final windows, and sessions."""

from __future__ import annotations

from headrace.operators.implementation import Opening
from headrace.plan.choice import adds
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.plan.window import kind_of
from headrace.row.layout import RowLayout
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind
from headrace.store.fold.final import FinalStore, added_kind
from headrace.store.fold.rmw import RmwStore
from headrace.store.rows.groups import Computation
from headrace.store.rows.kept_layout import KeptLayout
from headrace.store.sessions.store import SessionStore, session_kinds

ROWS = "rows"


class Folding:
    """An `Implementation` whose stores fold rows into accumulators."""

    def kinds(self, spec: OperatorSpec, store: StoreName) -> tuple[FileKind, ...]:
        if kind_of(spec.window) == "session":
            return session_kinds(spec)
        return (added_kind(RowLayout(spec)) if adds(spec) else FileKind(ROWS, RowLayout(spec)),)

    def open(self, opening: Opening) -> Store:
        spec = opening.spec
        place = (spec, opening.budget, opening.files, opening.segments, opening.watermark_us)
        if kind_of(spec.window) == "session":
            return SessionStore(*place, opening.known_keys)
        if adds(spec):
            return FinalStore(*place)
        return RmwStore(*place, opening.known_keys, policy=opening.policy)

    def computation(self, layout: KeptLayout) -> Computation:
        raise TypeError(f"operator {layout.spec.name} keeps no rows, so no groups are computed from them")
