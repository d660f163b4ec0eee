"""Protects against rows that vanish behind a damaged block of RocksDB: every read raises an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import rocksdict

from headrace.errors import StateCorrupt
from headrace.files.logical import LogicalFile
from headrace.store.rocksdb.files import Database
from headrace.store.rocksdb.sst import SstFile, checksum

KEYS = [number.to_bytes(8, "big") for number in range(0, 8000, 2)]
LOW, HIGH = KEYS[0], b"\xff" * 8
MEMORY = 8 << 20


def value_of(key: bytes) -> bytes:
    return key * 6


def scanned(database: Database) -> list[bytes]:
    return [value for part in database.values(LOW, HIGH) for value in part]


def looked_up(database: Database) -> list[bytes]:
    values = [
        value
        for start in range(0, len(KEYS), 256)
        for value in database.get_many(KEYS[start : start + 256])
    ]
    return [value for value in values if value is not None]


def by_prefix(database: Database) -> list[bytes]:
    return list(database.values_at((key, key + b"\x00") for key in KEYS))


def listed(database: Database) -> list[bytes]:
    return [value_of(key) for key in database.keys(LOW, HIGH)]


READS = {"scan": scanned, "lookup": looked_up, "prefixes": by_prefix, "keys": listed}


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a state that RocksDB wrote."""
    database = Database([], MEMORY)
    batch = rocksdict.WriteBatch(raw_mode=True)
    for key in KEYS:
        batch.put(key, value_of(key))
    database.write(batch)
    files = {path.name: path.read_bytes() for path in database.checkpoint()}
    database.close()
    return files


def open_version(files: dict[str, bytes], folder: Path) -> Database:
    folder.mkdir(parents=True)
    opened = []
    for label, data in files.items():
        path = folder / label
        path.write_bytes(data)
        file = LogicalFile(label, "sst", len(data), checksum(path))
        opened.append(SstFile(file, label, lambda _, target, __, data=data: target.write_bytes(data)))
    return Database(opened, MEMORY)


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_flipped_bit_in_an_sst_never_hides_rows(
    read: Callable[[Database], list[bytes]], version: dict[str, bytes], tmp_path: Path
) -> None:
    table = next(label for label in version if label.endswith(".sst"))
    refused = 0
    for number, position in enumerate(range(7, len(version[table]), len(version[table]) // 23)):
        damaged = bytearray(version[table])
        damaged[position] ^= 1 << (position % 8)
        try:
            database = open_version({**version, table: bytes(damaged)}, tmp_path / str(number))
            assert read(database) == [value_of(key) for key in KEYS], f"bit flipped at {position}"
            database.close()
        except StateCorrupt:
            refused += 1
    assert refused >= 15, "most of a table is blocks of rows"


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_intact_tables_are_read_in_full(
    read: Callable[[Database], list[bytes]], version: dict[str, bytes], tmp_path: Path
) -> None:
    assert read(open_version(version, tmp_path / "v")) == [value_of(key) for key in KEYS]


def test_rows_written_during_a_scan_do_not_look_like_damage(
    version: dict[str, bytes], tmp_path: Path
) -> None:
    database = open_version(version, tmp_path / "v")
    parts = database.values(LOW, HIGH)
    values = next(parts)
    batch = rocksdict.WriteBatch(raw_mode=True)
    batch.put((9001).to_bytes(8, "big"), b"a later epoch")
    batch.delete(KEYS[-1])
    database.write(batch)
    assert values + [value for part in parts for value in part] == [value_of(key) for key in KEYS]


def test_an_empty_range_is_no_damage(version: dict[str, bytes], tmp_path: Path) -> None:
    database = open_version(version, tmp_path / "v")
    odd = (4001).to_bytes(8, "big")
    assert list(database.values(odd, odd + b"\x00")) == []
    assert database.keys(b"\xff", b"\xff\xff") == []
