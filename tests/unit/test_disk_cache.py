"""Protects the disk cache: its decisions, its bound over copies and partial files, eviction under open
readers, loading back by history, and two hosts of one machine that evict each other's copies.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.blob.cached import CachedBlobs
from headrace.blob.copies import LocalCopies
from headrace.blob.memory import MemoryBlobs
from headrace.checkpoint.home import PartitionHome
from headrace.clock import SystemClock, wait_until
from headrace.errors import SettingError
from headrace.files.fetch import Fetcher
from headrace.files.keeper import CacheKeeper
from headrace.files.policy import History, HistoryPolicy, WholeFile
from headrace.files.space import PartialSpace
from headrace.files.table import FileTable
from headrace.plan.options import read_options
from headrace.plan.values.disk import disk_bytes, parse_disk
from headrace.testing import ManualClock
from headrace.testing.contracts.store_contract import check, folding
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel
from headrace.testing.faults.measured_blobs import MeasuredBlobs

POLICY = HistoryPolicy()
SPEC = folding(None, "changes")
SMALL = 1 << 14  # bytes of memory: rows are read from segments


# ── decisions ────────────────────────────────────────────────────────────────────────────────

sizes = st.lists(st.tuples(st.integers(1, 100), st.integers(0, 50)), max_size=12)


@given(sizes, st.integers(0, 300))
def test_the_files_used_longest_ago_go(files: list[tuple[int, int]], limit: int) -> None:
    listed = [WholeFile(str(at), size, used) for at, (size, used) in enumerate(files)]
    gone = POLICY.victims(listed, limit)
    stay = [file for file in listed if file not in gone]
    assert sum(file.size for file in stay) <= limit
    assert all(one.used_ms <= other.used_ms for one in gone for other in stay)
    if gone:
        assert sum(file.size for file in stay) + gone[-1].size > limit, "no more than needed"


def test_a_file_is_loaded_after_six_uses_within_a_minute() -> None:
    history, now = History(), 0.0
    for use in range(6):
        assert not POLICY.loads(history, now), f"after {use} uses"
        now += 11_000.0
        history = POLICY.used(history, now)
    assert POLICY.loads(history, now)
    assert not POLICY.loads(history, now + 10_000), "the first of them was more than a minute ago"


def test_a_file_that_was_evicted_three_times_is_barred_for_a_while() -> None:
    history = History()
    for at in range(3):
        history = POLICY.evicted(history, at * 1000.0)
    for at in range(6):
        history = POLICY.used(history, 3000.0 + 1000 * at)
    assert not POLICY.loads(history, 9000.0)
    for at in range(6):
        history = POLICY.used(history, 601_000.0 + 1000 * at)
    assert POLICY.loads(history, 607_000.0)


def test_the_requests_of_one_batch_are_one_use() -> None:
    history = History()
    for at in range(100):
        history = POLICY.used(history, at)
    assert not POLICY.loads(history, 100.0)


@pytest.mark.parametrize(
    ("text", "nbytes"), [("20g", 20 << 30), ("10%", 100), ("0", 0), ("2.5 %", 25), ("512MB", 512 << 20)]
)
def test_a_limit_is_a_size_or_a_share(text: str, nbytes: int) -> None:
    options = read_options({"spark.headrace.cache.disk": text}, 2)
    assert disk_bytes(options.cache_disk, 1000) == nbytes


@pytest.mark.parametrize("text", ["", "much", "0%", "120%", "-1", "10 apples"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="20g"):
        parse_disk(text)
    with pytest.raises(SettingError, match=r"cache\.disk"):
        read_options({"spark.headrace.cache.disk": text}, 2)


# ── copies ───────────────────────────────────────────────────────────────────────────────────


@dataclass
class Machine:
    """One host's cache over storage that others see too."""

    folder: Path
    limit: int
    blobs: MeasuredBlobs = field(default_factory=lambda: MeasuredBlobs(MemoryBlobs()))
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.space = PartialSpace(self.folder, self.limit, Fetcher(4))
        self.keeper = CacheKeeper(self.folder, self.limit, self.space, clock=self.clock)
        self.space.is_worth_loading = self.keeper.used
        copies = LocalCopies.open(self.folder, "x")
        self.cached = CachedBlobs(self.blobs, copies, self.keeper.admits)

    def put(self, name: str, size: int) -> None:
        path = self.cached.staging(name)
        path.write_bytes(bytes(size))
        self.cached.put_file(name, path)

    def copies(self) -> list[Path]:
        return [path for path in (self.folder / "copies").rglob("*") if path.is_file()]

    def disk(self) -> int:
        return sum(path.stat().st_size for path in self.copies()) + self.space.used_bytes


def test_copies_stay_within_half_of_the_limit(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1000)
    for number in range(40):
        machine.put(f"p/{number}", 10 + 7 * number % 60)
        assert sum(path.stat().st_size for path in machine.copies()) <= 500
    assert machine.keeper.evictions["room"] > 0
    machine.put("p/large", 400)
    assert machine.cached.local_path("p/large") is None, "it would take too large a part"


def test_two_hosts_count_each_others_copies(tmp_path: Path) -> None:
    one, other = Machine(tmp_path, 1000), Machine(tmp_path, 1000)
    for number in range(20):
        one.put(f"p/{number}", 50)
        other.put(f"q/{number}", 50)
        one.clock.sleep_ms(20_000)
        other.clock.sleep_ms(20_000)
    assert sum(path.stat().st_size for path in one.copies()) <= 550


def test_no_copies_where_the_limit_is_zero(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0)
    machine.put("p/s", 10)
    assert machine.copies() == []
    assert machine.cached.get("p/s") == bytes(10)


# ── under stores ─────────────────────────────────────────────────────────────────────────────


@dataclass
class CachedLab(StoreLab):
    """A store behind a disk cache."""

    machine: Machine = field(kw_only=True)

    def __post_init__(self) -> None:
        self.home = PartitionHome.of(self.machine.cached, "p", SystemClock(), space=self.machine.space)
        self.reopen()

    def settle_files(self) -> None:
        for segment in self.store.segments:
            segment.settle()  # type: ignore[attr-defined]


def epochs(lab: StoreLab, model: StoreModel, numbers: range) -> None:
    for number in numbers:
        check(
            lab, model, [Row(key, 0, key + number) for key in range(number % 3, 400, 1 + number % 3)], None
        )
        lab.compact()


@pytest.mark.parametrize("limit", [1 << 30, 100_000, 20_000, 0])
def test_results_do_not_depend_on_the_cache(tmp_path: Path, limit: int) -> None:
    machine, model = Machine(tmp_path, limit), StoreModel(SPEC)
    lab = CachedLab(SPEC, tmp_path, SMALL, machine=machine)
    for begin in range(0, 16, 4):
        epochs(lab, model, range(begin, begin + 4))
        lab.settle_files()
        if limit in (100_000, 20_000):
            assert machine.disk() <= limit + 40_000, "one read may need all of the state"
        lab.reopen()


def test_a_reader_goes_on_while_its_copies_are_evicted(tmp_path: Path) -> None:
    machine, model = Machine(tmp_path, 1 << 30), StoreModel(SPEC)
    lab = CachedLab(SPEC, tmp_path, SMALL, machine=machine)
    epochs(lab, model, range(4))
    assert machine.copies()
    for path in machine.copies():
        path.unlink()  # as another host does
    assert machine.blobs.counts()["range"] == 0
    epochs(lab, model, range(4, 6))
    assert machine.blobs.counts()["range"] > 0, "the reader let go of its copy"
    epochs(lab, model, range(6, 8))


def test_a_file_that_is_read_often_becomes_whole(tmp_path: Path) -> None:
    machine, data = Machine(tmp_path, 1 << 30), bytes(range(256)) * 4096
    machine.blobs.put_if_absent("p/segments/s", data)
    table = FileTable(machine.cached, "p", None, machine.space)
    file = table.open("segments/s", len(data))
    for number in range(8):
        assert machine.copies() == [], f"after {number} uses"
        machine.clock.sleep_ms(2000)
        at = 100_000 * number
        with file.reading():
            file.ensure(np.array([at]), np.array([at + 10]))
            assert os.pread(file.fd, 10, at) == data[at : at + 10]
        if number == 5:
            break
    assert wait_until(lambda: file.is_evicted, 30_000, 5)
    whole = table.open_instead("segments/s", file)
    assert whole is not None
    assert not whole.is_partial
    with whole.use():
        assert os.pread(whole.fd, len(data), 0) == data
