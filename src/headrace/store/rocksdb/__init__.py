"""The RocksDB store: the yardstick and an escape hatch."""
