"""Protects state on S3-compatible storage: the storage contract over real HTTP, what each failure of the
store means, local copies that spare the network, and patience with a store that is away.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.blob import cached, objects
from headrace.blob.base import Blobs
from headrace.blob.cached import CachedBlobs, download
from headrace.blob.clouds import S3
from headrace.blob.copies import UNUSED_MS, LocalCopies
from headrace.blob.locations import Locations
from headrace.blob.objects import ObjectBlobs, split_location
from headrace.blob.patient import Patience, PatientBlobs
from headrace.blob.retry import Retry, place_file, put_or_read
from headrace.blob.unfinished import this_machine
from headrace.errors import (
    AlreadyExists,
    BlobMissing,
    Fenced,
    MaybeApplied,
    SettingError,
    StateMissing,
    TryAgain,
)
from headrace.testing import FaultyBlobs, ManualClock, Outcome
from headrace.testing.contracts.blob_contract import BlobsContract
from headrace.testing.faults.s3_server import BUCKET, S3Server, no_faults
from headrace.testing.faults.slow_blobs import fixed_latency, outages


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    with S3Server() as server, server.environment():
        yield server


@pytest.fixture
def server(running: S3Server) -> Iterator[S3Server]:
    running.faults = no_faults
    running.requests.clear()
    yield running
    running.faults = no_faults


@pytest.fixture
def blobs(server: S3Server, tmp_path: Path) -> CachedBlobs:
    """A location of one test; its last part is the test's own folder."""
    location = server.location(f"state/{tmp_path.name}")
    return CachedBlobs(ObjectBlobs.open(location), LocalCopies.open(tmp_path / "local", location))


@pytest.fixture
def elsewhere(blobs: CachedBlobs, tmp_path: Path) -> CachedBlobs:
    """The same location, seen from another machine."""
    return CachedBlobs(ObjectBlobs.open(blobs.root), LocalCopies.open(tmp_path / "other", blobs.root))


class TestObjectBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, blobs: CachedBlobs) -> Blobs:
        return ObjectBlobs.open(blobs.root)


class TestCachedBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, blobs: CachedBlobs) -> Blobs:
        return blobs


class TestPatientObjectBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, blobs: CachedBlobs) -> Blobs:
        return PatientBlobs(FaultyBlobs(blobs), ManualClock())


def staged(blobs: Blobs, name: str, data: bytes) -> Path:
    path = blobs.staging(name)
    path.write_bytes(data)
    return path


# ── local copies ─────────────────────────────────────────────────────────────────────────────


def test_what_was_put_is_read_from_the_local_disk(blobs: CachedBlobs, server: S3Server) -> None:
    source = staged(blobs, "p/s", b"segment")
    inode = source.stat().st_ino
    blobs.put_file("p/s", source)
    requests = len(server.requests)
    path = blobs.local_path("p/s")
    assert path is not None
    assert path.read_bytes() == b"segment"
    assert path.stat().st_ino == inode, "the staged file itself, not a copy of it"
    assert len(server.requests) == requests == 1


def test_what_others_put_is_read_in_ranges(
    blobs: CachedBlobs, elsewhere: CachedBlobs, server: S3Server
) -> None:
    data = os.urandom(2500)
    blobs.put_file("p/s", staged(blobs, "p/s", data))
    server.requests.clear()
    assert elsewhere.local_path("p/s") is None
    assert elsewhere.get_range("p/s", 1000, 500) == data[1000:1500]
    assert [method for method, _ in server.requests] == ["GET"]


def test_a_range_beyond_the_end_is_short(blobs: CachedBlobs) -> None:
    blobs.put_if_absent("p/s", b"segment")
    assert blobs.get_range("p/s", 3, 100) == b"ment"
    assert blobs.get_range("p/s", 7, 100) == b""
    assert blobs.get_range("p/s", 70, 100) == b""


def test_a_download_is_whole_or_leaves_nothing(
    blobs: CachedBlobs, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached, "CHUNK_BYTES", 1000)
    data, target = os.urandom(2500), tmp_path / "target"
    blobs.put_file("p/s", staged(blobs, "p/s", data))
    server.requests.clear()
    download(blobs, "p/s", target)
    assert target.read_bytes() == data
    assert [method for method, _ in server.requests] == ["HEAD", "GET", "GET", "GET"]
    target.unlink()
    server.faults = lambda method, path: 503 if method == "GET" else None
    with pytest.raises(TryAgain, match="SlowDown"):
        download(blobs, "p/s", target)
    assert not target.exists()


def test_a_copy_of_another_size_is_dropped(blobs: CachedBlobs) -> None:
    blobs.put_file("p/s", staged(blobs, "p/s", b"segment"))
    copy = blobs.local_path("p/s")
    assert copy is not None
    copy.write_bytes(b"seg")
    assert blobs.size("p/s") == 7
    assert blobs.local_path("p/s") is None


def test_a_copy_without_room_is_not_kept(blobs: CachedBlobs, tmp_path: Path) -> None:
    copies = LocalCopies.open(tmp_path / "local", blobs.root)
    narrow = CachedBlobs(ObjectBlobs.open(blobs.root), copies, lambda size: size < 5)
    narrow.put_file("p/large", staged(narrow, "p/large", b"segment"))
    narrow.put_file("p/small", staged(narrow, "p/small", b"seg"))
    assert narrow.local_path("p/large") is None
    assert narrow.local_path("p/small") is not None


def test_a_deleted_blob_has_no_copy(blobs: CachedBlobs) -> None:
    blobs.put_file("p/s", staged(blobs, "p/s", b"segment"))
    path = blobs.local_path("p/s")
    blobs.delete("p/s")
    assert path is not None
    assert not path.exists()
    assert blobs.local_path("p/s") is None
    with pytest.raises(BlobMissing):
        blobs.get_range("p/s", 0, 1)


def test_copies_of_what_others_deleted_are_swept(blobs: CachedBlobs, elsewhere: CachedBlobs) -> None:
    for name in ("p/s1", "p/s2", "q/s3"):
        blobs.put_file(name, staged(blobs, name, b"segment"))
    paths = [blobs.local_path(name) for name in ("p/s1", "p/s2", "q/s3")]
    elsewhere.delete("p/s1")
    elsewhere.delete("q/s3")
    blobs.sweep("p/")
    assert [path is not None and path.exists() for path in paths] == [False, True, True]


def test_unfinished_files_of_the_dead_are_swept(blobs: CachedBlobs) -> None:
    living = staged(blobs, "p/s", b"half")
    dead = living.with_name(f".tmp-{this_machine()}@{2**30}-{'0' * 32}.tmp")
    dead.write_bytes(b"half")
    blobs.sweep("p/")
    assert living.exists()
    assert not dead.exists()


def test_copies_that_nobody_uses_go(tmp_path: Path) -> None:
    clock = ManualClock(now_ms=UNUSED_MS * 10)
    copies = LocalCopies.open(tmp_path, "s3://b/p")
    for name, used_ms in (("p/old", UNUSED_MS * 9 - 1000), ("p/new", UNUSED_MS * 9 + 1000)):
        source = copies.staging(name)
        source.write_bytes(b"x")
        path = copies.keep(name, source)
        os.utime(path, (used_ms / 1000, used_ms / 1000))
    copies.drop_unused(clock.now_ms())
    assert copies.names("") == ["p/new"]


def test_a_full_local_disk_does_not_undo_an_upload(
    blobs: CachedBlobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = staged(blobs, "p/s", b"segment")

    def full(*args: object) -> None:
        raise TryAgain("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(LocalCopies, "keep", full)
        blobs.put_file("p/s", source)
    assert "no local copy yet" in caplog.text
    assert not source.exists()
    assert blobs.get("p/s") == b"segment"


def test_large_files_go_up_in_parts(
    blobs: CachedBlobs, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "WHOLE_BYTES", 1 << 20)
    data = os.urandom(9 << 20)
    blobs.put_file("p/s", staged(blobs, "p/s", data))
    assert blobs.get("p/s") == data
    assert [method for method, _ in server.requests].count("POST") == 2, "begun and completed"
    with pytest.raises(AlreadyExists):
        blobs.put_file("p/s", staged(blobs, "p/s", data))


# ── what failures mean ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "write", "read"),
    [
        (503, TryAgain, TryAgain),
        (500, MaybeApplied, TryAgain),
        (409, TryAgain, TryAgain),
        (403, SettingError, SettingError),
        (Outcome.REPLY_LOST, MaybeApplied, TryAgain),
        (Outcome.REQUEST_LOST, MaybeApplied, TryAgain),
    ],
)
def test_an_error_says_what_is_known(
    blobs: CachedBlobs, server: S3Server, fault: int | Outcome, write: type, read: type
) -> None:
    blobs.put_if_absent("there", b"x")
    server.faults = lambda method, path: fault
    calls = [(write, lambda: blobs.put_if_absent("x", b"x"))]
    calls += [(read, lambda: blobs.get("there")), (read, lambda: blobs.list(""))]
    calls += [(read, lambda: blobs.size("there")), (read, lambda: blobs.delete("there"))]
    for expected, call in calls:
        with pytest.raises(expected) as error:
            call()
        assert type(error.value) is expected
        assert error.value.hint
    server.faults = no_faults
    assert ("x" in blobs.list("")) == (fault is Outcome.REPLY_LOST)


def test_a_store_that_is_not_there_was_not_written(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    blobs = ObjectBlobs.open("s3://b/p")
    with pytest.raises(TryAgain, match="no answer from its endpoint"):
        blobs.put_if_absent("x", b"")


def test_a_missing_bucket_is_named(server: S3Server, tmp_path: Path) -> None:
    blobs = ObjectBlobs.open("s3://not-there/p")
    for call in (lambda: blobs.list(""), lambda: blobs.get("x"), lambda: blobs.put_if_absent("x", b"")):
        with pytest.raises(StateMissing, match="bucket not-there does not exist"):
            call()


def test_missing_credentials_are_named(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    blobs = ObjectBlobs.open(server.location("p"))
    with pytest.raises(SettingError, match=r"no credentials[\s\S]*AWS_ACCESS_KEY_ID"):
        blobs.list("")


def test_nothing_goes_over_the_network_unencrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://192.0.2.1:9000")
    with pytest.raises(SettingError, match="unencrypted"):
        ObjectBlobs.open("s3://b/p")


def test_locations_are_buckets_and_prefixes() -> None:
    assert split_location("s3://b/p/q/") == (S3, "b", "p/q")
    assert split_location("s3://b") == (S3, "b", "")
    with pytest.raises(SettingError):
        split_location("s3:///p")


# ── lost replies, and storage that is away ───────────────────────────────────────────────────


@pytest.mark.parametrize("first", [500, 503, 409, *Outcome])
def test_a_write_ends_with_the_name_holding_the_bytes(
    blobs: CachedBlobs, server: S3Server, first: int | Outcome
) -> None:
    patient, faults = PatientBlobs(blobs, ManualClock()), iter([first])
    server.faults = lambda method, path: next(faults, None) if method == "PUT" else None
    assert put_or_read(patient, "m", b"mine", clock=ManualClock(), retry=Retry()) == b"mine"
    faults = iter([first])
    place_file(patient, "s", staged(blobs, "s", b"rows"), clock=ManualClock(), retry=Retry())
    assert (blobs.get("m"), blobs.get("s")) == (b"mine", b"rows")
    path = blobs.local_path("s")
    assert path is None or path.read_bytes() == b"rows"


def test_a_name_that_another_writer_took_is_fenced(blobs: CachedBlobs) -> None:
    blobs.put_if_absent("s", b"theirs")
    with pytest.raises(Fenced):
        place_file(blobs, "s", staged(blobs, "s", b"mine"), clock=ManualClock(), retry=Retry())


def away_for(ms: float, clock: ManualClock, blobs: Blobs) -> FaultyBlobs:
    return FaultyBlobs(blobs, outages([(0, ms)], clock))


def test_storage_that_is_away_for_a_minute_is_waited_for(
    blobs: CachedBlobs, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    caplog.set_level(logging.INFO, "headrace.blob")
    patient = PatientBlobs(away_for(60_000, clock, blobs), clock, jitter=lambda: 1.0)
    patient.put_if_absent("x", b"mine")
    assert blobs.get("x") == b"mine"
    assert 60_000 <= clock.monotonic_ms() <= 65_000
    assert len(clock.slept_ms) < 30, "it waits, it does not spin"
    assert caplog.text.count("waiting for") in range(3, 9)
    assert "is back after 6" in caplog.text
    assert patient.waited_ms == 0.0


def test_storage_that_stays_away_is_an_error(blobs: CachedBlobs) -> None:
    clock = ManualClock()
    patient = PatientBlobs(away_for(1e9, clock, blobs), clock, Patience(limit_ms=20_000))
    for call in (lambda: patient.list(""), lambda: patient.put_if_absent("x", b"")):
        with pytest.raises(TryAgain):
            call()
    assert 40_000 <= clock.monotonic_ms() <= 52_000


def test_a_wait_can_be_seen_while_it_lasts(blobs: CachedBlobs) -> None:
    clock, seen = ManualClock(), []
    patient = PatientBlobs(away_for(2_000, clock, blobs), clock)
    plain = clock.sleep_ms

    def sleep(ms: float) -> None:
        plain(ms)
        seen.append(patient.waited_ms)

    clock.sleep_ms = sleep  # type: ignore[method-assign]
    patient.list("")
    assert seen == sorted(seen)
    assert seen[-1] >= 2_000


def test_a_wrong_setting_is_not_waited_out(blobs: CachedBlobs, server: S3Server) -> None:
    clock = ManualClock()
    server.faults = lambda method, path: 403
    with pytest.raises(SettingError):
        PatientBlobs(blobs, clock).list("")
    assert clock.slept_ms == []


def test_latency_is_per_request(blobs: CachedBlobs) -> None:
    clock = ManualClock()
    far = FaultyBlobs(blobs, wait=fixed_latency(23.0, clock))
    far.put_file("s", staged(far, "s", b"rows"))
    far.local_path("s")
    far.size("s")
    assert clock.slept_ms == [23.0, 23.0], "the local disk is near"


# ── by scheme ────────────────────────────────────────────────────────────────────────────────


def test_the_scheme_says_what_a_location_is(server: S3Server, tmp_path: Path) -> None:
    locations = Locations(tmp_path / "local")
    inside = locations.open(f"s3://{BUCKET}/by-scheme", create=True)
    assert inside is locations.open(f"s3://{BUCKET}/by-scheme", create=False)
    inside.put_if_absent("x", b"1")
    assert inside.get("x") == b"1"
    files = locations.open(str(tmp_path / "state"), create=True)
    files.put_if_absent("x", b"2")
    assert (tmp_path / "state" / "x").read_bytes() == b"2"
    assert locations.waits_ms() == {}
