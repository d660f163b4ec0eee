"""Protects the store contract for the same layouts over RocksDB."""

from __future__ import annotations

from headrace.testing.store_contract import TUMBLE, StoreContract, folding


class TestRocksDB(StoreContract):
    name = "rocksdb"
    cases = (folding(None, "changes"), folding(TUMBLE, "final"), folding(TUMBLE, "changes"))
