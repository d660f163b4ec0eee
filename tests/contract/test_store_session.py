"""Protects the store contract for sessions: answers, spills, broken epochs, versions and late rows, with
sessions that merge out of order, close in memory and on disk, and change after they closed."""

from __future__ import annotations

from headrace.testing.contracts.store_contract import LATE_SESSION, SESSION, StoreContract, folding


class TestSessions(StoreContract):
    name = "rmw"
    cases = (
        folding(SESSION, "final"),
        folding(SESSION, "changes"),
        folding(LATE_SESSION, "final"),
        folding(LATE_SESSION, "changes"),
    )
