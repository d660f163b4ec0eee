"""A RocksDB folder and the files of a version: open from them, and what a commit adds to them.

RocksDB's table files never change. A version is the table files of a RocksDB checkpoint and a copy of its
MANIFEST; a commit hands out only those that the version before does not have. The folder itself is scratch:
it is made from a version's files (hard links where the file system allows), and goes with its `Database`.
Tuned by RocksDB's own guide (Setup Options and Basic Tuning; Memory usage): 16 KiB blocks, Bloom filters of
10 bits, dynamic level sizes, LZ4, no log ahead of writes. Index and filter blocks are in the one cache that
memtables are charged to.
Threads: any; RocksDB guards itself.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import rocksdict

from headrace.errors import StateCorrupt, TryAgain
from headrace.store.rocksdb.sst import SstFile, checksum

_CACHE_MIN = 1 << 20
_WRITE_PART = 3  # a third of the memory may be unflushed writes
_MANIFEST_BYTES = 1 << 20
_LEVEL_0_FILES = 4  # RocksDB's own trigger of compaction
_FILE_MIN = 1 << 20
_CHECKPOINT = "checkpoint"
_BACKUP = "bring the version's files back from a backup, or start again with a new checkpoint location"
GET_KEYS = 1 << 8  # RocksDB pins the block of every key of a multi-get until the last one is found
SCAN_VALUES = 1 << 12  # a value is an object of Python before its rows are unpacked


class Database:
    """RocksDB over a scratch folder of its own."""

    def __init__(self, files: Sequence[SstFile], memory_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rocksdb-"))
        self.cache = rocksdict.Cache(max(memory_bytes, _CACHE_MIN))
        self._limit = memory_bytes
        buffers = max(memory_bytes, _CACHE_MIN) // _WRITE_PART
        charged = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache
        self._buffers = charged(buffers, False, self.cache)
        self.unlogged = rocksdict.WriteOptions()
        self.unlogged.disable_wal = True
        _lay_out(files, self.folder)
        with _understood(self.folder):
            self.db = rocksdict.Rdict(str(self.folder), _options(self.cache, self._buffers))
        self._closed = weakref.finalize(self, _remove, self.db, self.folder)

    @property
    def memory_bytes(self) -> int:
        return int(self.cache.get_usage())

    def write(self, batch: rocksdict.WriteBatch) -> None:
        with _understood(self.folder):
            self.db.write(batch, self.unlogged)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Their values; for at most `GET_KEYS` keys."""
        with _understood(self.folder):
            values: list[bytes | None] = self.db.get(keys)
        return values

    def values(self, low: bytes, high: bytes) -> Iterator[list[bytes]]:
        """The values of all keys in `[low, high)`, in the order of the keys, part by part."""
        values, cursor = self._with_end(self.db.values, low, high)
        last: bytes | None = None
        while part := self._next(values):
            last = part[-1]
            yield part
        self._check_end(last, self._end(cursor, low, high)[1])

    def _next(self, values: Iterator[bytes]) -> list[bytes]:
        with _understood(self.folder):
            return list(islice(values, SCAN_VALUES))

    def keys(self, low: bytes, high: bytes) -> list[bytes]:
        """All keys in `[low, high)`."""
        iterator, cursor = self._with_end(self.db.keys, low, high)
        with _understood(self.folder):
            keys = list(iterator)
        self._check_end(keys[-1] if keys else None, self._end(cursor, low, high)[0])
        return keys

    def _with_end(self, read: Callable[..., Any], low: bytes, high: bytes) -> tuple[Any, Any]:
        """An iterator over a range, and a cursor that shows the range at the same moment.

        A snapshot of the binding forgets its moment when it gets read options.
        """
        with _understood(self.folder):
            while True:
                moment = self.db.latest_sequence_number()
                iterator, cursor = read(from_key=low, read_opt=_below(high)), self.db.iter(_below(high))
                if self.db.latest_sequence_number() == moment:  # an epoch may be written meanwhile
                    return iterator, cursor

    def _end(self, cursor: Any, low: bytes, high: bytes) -> tuple[bytes | None, bytes | None]:
        """The last key of a range and its value, read from the far end; None in an empty range."""
        with _understood(self.folder):
            cursor.seek_for_prev(high)
            cursor.status()
            return (
                (cursor.key(), cursor.value()) if cursor.valid() and cursor.key() >= low else (None, None)
            )

    def _check_end(self, last: bytes | None, expected: bytes | None) -> None:
        """Compares the end of a scan with the end of its range.

        The binding's iterators end without an error before a damaged block. A value has the words of its
        key, so that two values of a range differ.
        """
        if last != expected:
            raise StateCorrupt(
                f"RocksDB in {self.folder}: a scan ended before a damaged block", hint=_BACKUP
            )

    def values_at(self, ranges: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
        """The values of many short ranges, one after another: RocksDB has no bulk read of prefixes."""
        with _understood(self.folder):
            cursor = self.db.iter()
            for low, high in ranges:
                cursor.seek(low)
                while cursor.valid() and cursor.key() < high:
                    yield cursor.value()
                    cursor.next()
                cursor.status()  # a damaged block makes the cursor invalid

    def delete(self, keys: list[bytes]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        deque(map(batch.delete, keys), maxlen=0)
        self.write(batch)

    def delete_range(self, low: bytes, high: bytes) -> None:
        with _understood(self.folder):
            self.db.delete_range(low, high, self.unlogged)

    def limit(self, memory_bytes: int) -> None:
        """Use at most so much memory from now on."""
        if memory_bytes != self._limit:
            self._limit = memory_bytes
            self.cache.set_capacity(max(memory_bytes, _CACHE_MIN))
            self._buffers.set_buffer_size(max(memory_bytes, _CACHE_MIN) // _WRITE_PART)

    def checkpoint(self) -> list[Path]:
        """All files of the state as it is now, flushed, to be taken before `forget_checkpoint`."""
        folder = self.folder / _CHECKPOINT
        with _understood(self.folder):
            self.db.flush()
            rocksdict.Checkpoint(self.db).create_checkpoint(str(folder))
        return sorted(path for path in folder.iterdir() if _is_state(path.name))

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self.folder / _CHECKPOINT)

    def close(self) -> None:
        self._closed()


def give_back() -> None:
    """Return freed pages to the system: blocks that come and go leave them between blocks that stay."""
    with suppress(AttributeError):  # of another C library than glibc, which has its own ways
        ctypes.CDLL(None).malloc_trim(0)


def _below(high: bytes) -> rocksdict.ReadOptions:
    options = rocksdict.ReadOptions()
    options.set_verify_checksums(True)
    options.set_iterate_upper_bound(high)
    return options


def _is_state(name: str) -> bool:
    return name.endswith(".sst") or name.startswith("MANIFEST-")


def _lay_out(files: Sequence[SstFile], folder: Path) -> None:
    """Puts a version's files where RocksDB looks for them."""
    for file in files:
        place, is_manifest = folder / file.label, file.label.startswith("MANIFEST-")
        file.copy_to(place, link=not is_manifest)  # RocksDB appends to its manifest
        if not is_manifest:
            continue
        if checksum(place) != file.file.checksum:
            raise StateCorrupt(
                f"{file.file.id} fails its checksum",
                hint=_BACKUP,
            )
        (folder / "CURRENT").write_text(f"{file.label}\n")


def _options(cache: rocksdict.Cache, buffers: rocksdict.WriteBufferManager) -> rocksdict.Options:
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_block_size(16 << 10)
    blocks.set_format_version(5)
    blocks.set_bloom_filter(10, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(buffers)
    memtable = min(64 << 20, max(64 << 10, buffers.get_buffer_size() // 2))
    options.set_write_buffer_size(memtable)
    # By the guide the first level is as large as level 0 grows before it is compacted. With the default of
    # 256 MB beside small memtables every compaction would write all of a small state anew.
    options.set_max_bytes_for_level_base(_LEVEL_0_FILES * memtable)
    options.set_target_file_size_base(max(_LEVEL_0_FILES * memtable // 10, _FILE_MIN))
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_background_jobs(2)
    options.set_bytes_per_sync(1 << 20)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_max_manifest_file_size(_MANIFEST_BYTES)
    options.set_keep_log_file_num(1)
    options.set_max_open_files(256)
    return options


def _remove(db: Any, folder: Path) -> None:
    with suppress(Exception):  # what it would still write is not needed, and the folder may be gone already
        db.close()
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _understood(folder: Path) -> Iterator[None]:
    """Turns RocksDB's error into an error of Headrace."""
    try:
        yield
    except rocksdict.DbClosedError:
        raise
    except Exception as error:
        text = str(error)
        if "Corruption" in text:
            raise StateCorrupt(
                f"RocksDB in {folder}: {text}",
                hint=_BACKUP,
            ) from error
        raise TryAgain(
            f"RocksDB in {folder}: {text}", hint="look at that disk; the batch is tried again"
        ) from error
