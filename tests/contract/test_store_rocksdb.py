"""Protects the store contract for the same layouts over RocksDB."""

from __future__ import annotations

from headrace.testing.store_contract import (
    LATE_SESSION,
    LATE_SLIDE,
    SESSION,
    SLIDE,
    TUMBLE,
    StoreContract,
    folding,
    keeping,
)


class TestRocksDB(StoreContract):
    name = "rocksdb"
    cases = (
        folding(None, "changes"),
        folding(TUMBLE, "final"),
        folding(LATE_SLIDE, "changes"),
        folding(SESSION, "final"),
        folding(LATE_SESSION, "changes"),
        keeping(SLIDE),
        keeping(SESSION),
    )
