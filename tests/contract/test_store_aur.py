"""Protects the store contract for kept rows of sessions: every row of a session is there when it ends, from
memory, from the log or read ahead, once, whatever was spilled, compacted or broken off."""

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
