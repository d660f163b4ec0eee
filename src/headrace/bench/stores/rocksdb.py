"""RocksDB without Spark, replaying a batch's operations; with Gadget's settings and RocksDB's tuning guide.

64 MB of block cache, two memtables of 128 MB, no write-ahead log. All reads of a batch are one multi-get,
all writes one write batch; a closed window is one range deletion. The binding has no merge operator, so an
append is a put under a key of its own, and reading a list is a range scan.

RocksDB's own statistics separate its time from that of the binding. They have no time for the steps of a
scan, so a whole scan counts as RocksDB's, and the binding's share is a lower bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import rocksdict

from headrace.clock import SYSTEM_CLOCK

CACHE_BYTES, MEMTABLE_BYTES, MEMTABLES = 64 << 20, 128 << 20, 2
MEMORY_BYTES = CACHE_BYTES + MEMTABLE_BYTES * MEMTABLES
_CALLS = re.compile(r"^rocksdb\.db\.(?:get|multiget|write)\.micros .* SUM : (\d+)$", re.MULTILINE)


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
    """One database in `folder`; a `counted` one keeps RocksDB's statistics."""

    def __init__(self, folder: Path, *, counted: bool = False) -> None:
        self._options, self._scans_s = _options(), 0.0
        if counted:
            self._options.enable_statistics()
        self._db = rocksdict.Rdict(str(folder / "db"), self._options)
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
        values = self._read(operations.reads) + self._scan_all(operations.scans)
        if operations.deletes or operations.drops:
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key in operations.deletes:
                batch.delete(key)
            for low, high in operations.drops:
                batch.delete_range(low, high)
            self._db.write(batch, self._unlogged)
        return values

    @property
    def inside_s(self) -> float:
        """Time of the calls inside RocksDB since the database was opened; only of a counted one."""
        calls_us = map(int, _CALLS.findall(self._options.get_statistics() or ""))
        return sum(calls_us) / 1e6 + self._scans_s

    def close(self) -> None:
        self._db.close()

    def _read(self, keys: list[bytes]) -> int:
        return sum(value is not None for value in self._db.get(keys)) if keys else 0

    def _scan_all(self, spans: list[tuple[bytes, bytes]]) -> int:
        begun_ms = SYSTEM_CLOCK.monotonic_ms()
        values = sum(self._scan(*span) for span in spans)
        self._scans_s += (SYSTEM_CLOCK.monotonic_ms() - begun_ms) / 1000
        return values

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
