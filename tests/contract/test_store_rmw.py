"""Protects the store contract for folding operators over fixed windows and none: the RMW store."""

from __future__ import annotations

from headrace.testing.contracts.store_contract import (
    LATE,
    LATE_SLIDE,
    SLIDE,
    TUMBLE,
    StoreContract,
    folding,
)


class TestRmw(StoreContract):
    name = "rmw"
    cases = (
        folding(None, "changes"),
        folding(TUMBLE, "final"),
        folding(TUMBLE, "changes"),
        folding(SLIDE, "final"),
        folding(SLIDE, "changes"),
        folding(LATE, "final"),
        folding(LATE_SLIDE, "final"),
        folding(LATE_SLIDE, "changes"),
    )
