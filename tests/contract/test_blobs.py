"""Protects the storage contract: every location behaves the same, and files survive what disks do."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from headrace.blob import files
from headrace.blob.base import Blobs
from headrace.blob.files import FileBlobs
from headrace.blob.memory import MemoryBlobs
from headrace.blob.retry import Retry, place_file, put_or_read
from headrace.blob.unfinished import this_machine
from headrace.errors import AlreadyExists, Fenced, MaybeApplied, StateMissing, TryAgain
from headrace.testing import FaultyBlobs, ManualClock, Outcome, seeded_outcomes
from headrace.testing.contracts.blob_contract import BlobsContract


class TestMemoryBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self) -> Blobs:
        return MemoryBlobs()


class TestFileBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> Blobs:
        return FileBlobs.open(tmp_path / "state" / "here", create=True)


class TestFaultlessFaultyBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self) -> Blobs:
        return FaultyBlobs(MemoryBlobs(), lambda operation: Outcome.DONE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def fail_with(number: int):
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_location_is_made_only_when_asked(root: Path) -> None:
    with pytest.raises(StateMissing, match=r"state location .*root does not exist"):
        FileBlobs.open(root, create=False)
    assert not root.exists()
    FileBlobs.open(root, create=True)
    FileBlobs.open(root, create=False)


def test_a_removed_location_is_an_error_and_stays_removed(root: Path, tmp_path: Path) -> None:
    blobs = FileBlobs.open(root, create=True)
    blobs.put_if_absent("a/x", b"")
    shutil.rmtree(root)
    source = tmp_path / "source"
    source.write_bytes(b"s")
    calls = [
        lambda: blobs.put_if_absent("a/y", b""),
        lambda: blobs.put_file("a/y", source),
        lambda: blobs.get("a/x"),
        lambda: blobs.size("a/x"),
        lambda: blobs.list(""),
    ]
    for call in calls:
        with pytest.raises(StateMissing, match=r"state location .* does not exist"):
            call()
    assert not root.exists()


def test_unfinished_files_are_never_listed(root: Path) -> None:
    blobs = FileBlobs.open(root, create=True)
    blobs.put_if_absent("a/x", b"")
    (root / "a" / ".tmp-123").write_bytes(b"half")
    assert blobs.list("") == ["a/x"]
    assert blobs.list("a/") == ["a/x"]


def test_only_what_the_dead_left_is_swept(root: Path) -> None:
    blobs = FileBlobs.open(root, create=True)
    blobs.put_if_absent("a/x", b"")
    living = blobs.staging("a/s")
    elsewhere = root / "a" / f".tmp-other-{this_machine()}@{2**30}-{'0' * 32}"
    dead = root / "a" / f".tmp-{this_machine()}@{2**30}-{'0' * 32}"
    half = dead.with_name(f"{dead.name}.tmp")
    for path in (living, elsewhere, dead, half):
        path.write_bytes(b"half")
    blobs.sweep("a/")
    assert [path.exists() for path in (living, elsewhere, dead, half)] == [True, True, False, False]
    assert blobs.list("") == ["a/x"]


def test_a_full_disk_says_so_and_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FileBlobs.open(root, create=True)
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", fail_with(errno.ENOSPC))
        with pytest.raises(TryAgain, match=r"No space left[\s\S]*free space"):
            blobs.put_if_absent("x", b"data")
    assert list(root.iterdir()) == []
    blobs.put_if_absent("x", b"data")
    assert blobs.get("x") == b"data"


def test_a_name_whose_directory_was_not_flushed_may_be_applied(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobs.open(root, create=True)
    with monkeypatch.context() as patch:
        patch.setattr(files, "_sync", fail_with(errno.EIO))
        with pytest.raises(MaybeApplied, match="could not be flushed"):
            blobs.put_if_absent("x", b"data")
    assert blobs.get("x") == b"data"


def test_a_file_system_without_links_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FileBlobs.open(root, create=True)
    monkeypatch.setattr(files.os, "link", fail_with(errno.EPERM))
    with pytest.raises(TryAgain, match="no hard links"):
        blobs.put_if_absent("x", b"data")


def test_a_file_from_the_same_file_system_is_not_copied(root: Path, tmp_path: Path) -> None:
    blobs = FileBlobs.open(root, create=True)
    source = tmp_path / "source"
    source.write_bytes(b"segment")
    inode = source.stat().st_ino
    blobs.put_file("a/s", source)
    assert (root / "a" / "s").stat().st_ino == inode


def test_a_file_from_another_file_system_is_copied(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, link = FileBlobs.open(root, create=True), os.link
    source = tmp_path / "source"
    source.write_bytes(b"segment")

    def link_within_root(old: Path, new: Path) -> None:
        if Path(old) == source:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        link(old, new)

    monkeypatch.setattr(files.os, "link", link_within_root)
    blobs.put_file("a/s", source)
    assert blobs.get("a/s") == b"segment"
    assert not source.exists()
    assert [path.name for path in (root / "a").iterdir()] == ["s"]


def test_a_source_that_cannot_be_removed_is_litter_and_no_failed_write(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once looked like somebody else's write under the same name."""
    blobs, source = FileBlobs.open(root, create=True), tmp_path / "source"
    source.write_bytes(b"segment")
    monkeypatch.setattr(Path, "unlink", fail_with(errno.EACCES))
    place_file(blobs, "a/s", source, clock=ManualClock(), retry=Retry())
    assert blobs.get("a/s") == b"segment"


def outcomes(*planned: Outcome):
    """Those outcomes for the first operations, then none that fail."""
    rest = iter(planned)
    return lambda operation: next(rest, Outcome.DONE)


@pytest.mark.parametrize("first", list(Outcome))
@pytest.mark.parametrize("second", list(Outcome))
def test_a_put_ends_with_the_name_holding_the_bytes(first: Outcome, second: Outcome) -> None:
    storage, clock = MemoryBlobs(), ManualClock()
    blobs = FaultyBlobs(storage, outcomes(first, second))
    assert put_or_read(blobs, "x", b"mine", clock=clock, retry=Retry()) == b"mine"
    assert storage.get("x") == b"mine"


@pytest.mark.parametrize("seed", range(40))
def test_a_put_that_gives_up_tells_the_truth(seed: int) -> None:
    storage, clock = MemoryBlobs(), ManualClock()
    blobs = FaultyBlobs(storage, seeded_outcomes(seed, 0.9))
    try:
        put_or_read(blobs, "x", b"mine", clock=clock, retry=Retry(tries=3))
    except TryAgain:
        assert storage.list("") == []
    except MaybeApplied:
        assert len(clock.slept_ms) == 2
    else:
        assert storage.get("x") == b"mine"


def test_another_writer_wins_and_is_returned() -> None:
    blobs = MemoryBlobs()
    blobs.put_if_absent("x", b"theirs")
    assert put_or_read(blobs, "x", b"mine", clock=ManualClock(), retry=Retry()) == b"theirs"


@pytest.mark.parametrize("first", list(Outcome))
@pytest.mark.parametrize("second", list(Outcome))
def test_a_file_is_placed_through_faults(first: Outcome, second: Outcome, tmp_path: Path) -> None:
    storage, source = MemoryBlobs(), tmp_path / "s"
    source.write_bytes(b"segment")
    blobs = FaultyBlobs(storage, outcomes(first, second))
    place_file(blobs, "x", source, clock=ManualClock(), retry=Retry())
    assert storage.get("x") == b"segment"
    assert not source.exists()


def test_a_file_whose_name_is_taken_is_fenced(tmp_path: Path) -> None:
    blobs, source = MemoryBlobs(), tmp_path / "s"
    blobs.put_if_absent("x", b"segment")
    source.write_bytes(b"segment")
    with pytest.raises(Fenced):
        place_file(blobs, "x", source, clock=ManualClock(), retry=Retry())
    assert source.exists()


def test_waits_double_up_to_a_limit() -> None:
    retry = Retry(tries=6, first_ms=10, last_ms=50)
    assert [retry.delay_ms(failures) for failures in range(1, 6)] == [10, 20, 40, 50, 50]


def test_a_taken_name_can_be_read_back() -> None:
    assert issubclass(AlreadyExists, Exception)
    assert not issubclass(AlreadyExists, TryAgain), "trying the same again cannot help"
