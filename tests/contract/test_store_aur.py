"""Protects the store contract for kept rows of sessions: every row of a session is there once when it ends,
from memory, from the log or read ahead. Spills, compactions and aborted epochs change nothing."""

from __future__ import annotations

from dataclasses import replace

from headrace.testing.contracts.store_contract import LATE_SESSION, SESSION, StoreContract, keeping

EXPECTING = replace(SESSION, ends="v0")


class TestAur(StoreContract):
    name = "aur"
    cases = (
        keeping(SESSION),
        keeping(LATE_SESSION),
        keeping(EXPECTING),
        replace(keeping(SESSION), instances=2),
    )
