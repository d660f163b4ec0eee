"""Protects the store contract for state that begins in memory and moves to a layout when it has grown."""

from __future__ import annotations

from headrace.testing.contracts.store_contract import (
    LATE_SESSION,
    LATE_SLIDE,
    SESSION,
    SLIDE,
    TUMBLE,
    StoreContract,
    keeping,
)


class TestAuto(StoreContract):
    name = "auto"
    cases = tuple(keeping(window) for window in (TUMBLE, SLIDE, LATE_SLIDE, SESSION, LATE_SESSION))
