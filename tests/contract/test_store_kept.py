"""Protects the store contract for operators that keep their rows: by slice, and by event time."""

from __future__ import annotations

from headrace.testing.contracts.store_contract import (
    LATE,
    LATE_SLIDE,
    SLIDE,
    TUMBLE,
    StoreContract,
    keeping,
)

KEPT = (keeping(TUMBLE), keeping(SLIDE), keeping(LATE), keeping(LATE_SLIDE))


class TestAar(StoreContract):
    name = "aar"
    cases = KEPT


class TestRange(StoreContract):
    name = "range"
    cases = KEPT
