"""Protects commits behind the batches from a damaged log, torn segments and a full disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from stepped_host import Host

from headrace.blob.files import FileBlobs
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.logged_files import seal_entry
from headrace.checkpoint.steps import Moment
from headrace.errors import StateMissing, TryAgain
from headrace.store.segments.writer import write_segment
from headrace.testing.clock import ManualClock


def flipped(data: bytes) -> bytes:
    """The data with one bit of its middle flipped."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("left", [0, 40, -3])
def test_a_damaged_log_is_named_and_counts_as_missing(host: Host, tmp_path: Path, left: int) -> None:
    host.run(0)
    (entry,) = host.local.glob("log/**/*.log")
    entry.write_bytes(entry.read_bytes()[:left])
    with pytest.raises(StateMissing, match=r"version 0 is missing .*\.log\.damaged is damaged") as refused:
        Host(tmp_path).run(1)
    assert "hr.start" in refused.value.hint
    assert host.logged() == []
    assert entry.with_name(entry.name + ".damaged").exists()


def test_a_damaged_log_does_not_matter_once_its_version_is_on_storage(host: Host, tmp_path: Path) -> None:
    host.run(0)
    (entry,) = host.local.glob("log/**/*.log")
    torn = entry.read_bytes()[:40]
    host.jobs.drain()
    entry.write_bytes(torn)
    assert Host(tmp_path).results(1)[1]["a"] == (2, 2)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: bytes(len(data)), flipped])
def test_a_torn_segment_is_not_uploaded_and_is_sealed_again(
    host: Host, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """The machine loses power after the seal: the segment has its name, and other bytes."""
    host.run(0, mode="upload")
    (segment,) = host.local.glob("log/**/*.segment")
    whole = segment.read_bytes()
    segment.write_bytes(damage(whole))
    with pytest.raises(TryAgain, match="could not be committed"):
        host.run(1, mode="upload")
    assert list((tmp_path / "shared").glob("**/*.segment")) == []
    assert host.results(1, attempt=7)[1]["a"] == (2, 2)
    host.jobs.drain()
    assert whole in [path.read_bytes() for path in (tmp_path / "shared").glob("**/*.segment")]


@pytest.mark.parametrize("is_uploaded", [False, True])
def test_an_entry_whose_own_file_is_torn_is_redone_only_from_storage(
    host: Host, tmp_path: Path, is_uploaded: bool
) -> None:
    """A file that was written before its entry cannot be sealed again from the entry's rows."""
    host.run(0, mode="upload")
    (segment,) = host.local.glob("log/**/*.segment")
    (entry,) = host.local.glob("log/**/*.log")
    rewrite_as_written_before(entry)
    if is_uploaded:
        shared = tmp_path / "shared" / segment.relative_to(next(host.local.glob("log/*")))
        shared.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(segment, shared)
    segment.write_bytes(flipped(segment.read_bytes()))
    after = Host(tmp_path)
    if is_uploaded:
        assert after.results(1)[1]["a"] == (2, 2)
    else:
        with pytest.raises(StateMissing, match="is damaged"):
            after.run(1)


def rewrite_as_written_before(path: Path) -> None:
    """Makes the entry name the segment that its rows were sealed as, without the rows."""
    log = LocalLog(path.parent)
    (attempt,) = log.entries()
    entry = log.read(attempt)
    prefix = "/".join(path.parent.parts[-3:])
    home = PartitionHome.of(FileBlobs.open(path.parent, create=False), prefix, ManualClock(), log)
    sealed = seal_entry(home, log, entry)
    whole = replace(entry.manifest, segments=tuple(sealed))
    log.draft([]).finish(whole, entry.parent, entry.spec, [part.name for part in sealed])


@pytest.mark.parametrize("fsync", [False, True])
def test_the_log_is_synced_before_the_acknowledgement_if_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    """Every name on the way to the entry, and the entry before it has its name."""
    synced: list[str] = []
    plain = os.fsync

    def record(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        plain(fd)

    monkeypatch.setattr(os, "fsync", record)
    host = Host(tmp_path, fsync=fsync)
    host.run(0)
    (entry,) = host.local.glob("log/**/*.log")
    in_log = [path for path in synced if "/log" in path.removeprefix(str(host.local))]
    assert bool(in_log) == fsync
    if fsync:
        assert Path(in_log[0]).name.startswith("."), "the entry, while it has no name"
        assert [str(path) for path in (entry.parent, *entry.parent.parents)][:5] == in_log[-5:]


def test_a_full_disk_at_the_log_fails_the_batch_and_nothing_else(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run(0)
    with monkeypatch.context() as full:
        full.setattr("headrace.checkpoint.log.write_run", no_space)
        with pytest.raises(TryAgain, match="No space left"):
            host.run(1)
    assert host.results(1, attempt=7)[1]["a"] == (2, 2)


def test_a_full_disk_at_the_seal_is_redone_from_the_log(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run(0)
    failures = [no_space]
    plain = write_segment

    def sometimes(*args: object, **kwargs: object) -> object:
        return failures.pop()() if failures else plain(*args, **kwargs)

    monkeypatch.setattr("headrace.checkpoint.logged_files.write_segment", sometimes)
    assert host.results(1)[1]["a"] == (2, 2)
    assert host.moments.count(Moment.SEALING) == 2


def no_space(*_: object) -> list[int]:
    raise OSError(28, "No space left on device")
