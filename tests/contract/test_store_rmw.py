"""Protects the store contract for folding operators: the RMW store, and the same state held in memory."""

from __future__ import annotations

from headrace.testing.store_contract import TUMBLE, StoreContract, folding

FOLDS = (folding(None, "changes"), folding(TUMBLE, "final"), folding(TUMBLE, "changes"))


class TestRmw(StoreContract):
    name = "rmw"
    cases = FOLDS
