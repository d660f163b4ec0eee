"""RocksDB without Spark, replaying a batch's operations; with Gadget's settings and RocksDB's tuning guide.

64 MB of block cache, two memtables of 128 MB, no write-ahead log. All reads of a batch are one multi-get,
all writes one write batch; a closed window is one range deletion. The binding has no merge operator, so an
append is a put under a key of its own, and reading a list is a range scan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import rocksdict

CACHE_BYTES, MEMTABLE_BYTES, MEMTABLES = 64 << 20, 128 << 20, 2
MEMORY_BYTES = CACHE_BYTES + MEMTABLE_BYTES * MEMTABLES


@dataclass
class Operations:
    """The operations of one batch, in this order."""

    gets: list[bytes] = field(default_factory=list)
    puts: list[tuple[bytes, bytes]] = field(default_factory=list)
    reads: list[bytes] = field(default_factory=list)  # reads of expiry
    scans: list[tuple[bytes, bytes]] = field(default_factory=list)  # from, to (left out)
    deletes: list[bytes] = field(default_factory=list)
    drops: list[tuple[bytes, bytes]] = field(default_factory=list)  # ranges


class RocksReplay:
    """One database in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._db = rocksdict.Rdict(str(folder / "db"), _options())
        self._unlogged = rocksdict.WriteOptions()
        self._unlogged.disable_wal = True

    def batch(self, operations: Operations) -> int:
        """Runs them all; returns the number of values that were read for ended windows."""
        self._read(operations.gets)
        if operations.puts:
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key, value in operations.puts:
                batch.put(key, value)
            self._db.write(batch, self._unlogged)
        values = self._read(operations.reads) + sum(self._scan(*span) for span in operations.scans)
        if operations.deletes or operations.drops:
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key in operations.deletes:
                batch.delete(key)
            for low, high in operations.drops:
                batch.delete_range(low, high)
            self._db.write(batch, self._unlogged)
        return values

    def close(self) -> None:
        self._db.close()

    def _read(self, keys: list[bytes]) -> int:
        return sum(value is not None for value in self._db.get(keys)) if keys else 0

    def _scan(self, low: bytes, high: bytes) -> int:
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(high)
        options.set_readahead_size(2 << 20)
        return sum(1 for _ in self._db.values(from_key=low, read_opt=options))


def _options() -> rocksdict.Options:
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_cache(rocksdict.Cache(CACHE_BYTES))
    blocks.set_block_size(16 << 10)
    blocks.set_bloom_filter(10, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_max_write_buffer_number(MEMTABLES)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_background_jobs(2)
    options.set_bytes_per_sync(1 << 20)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    return options
