"""Protects the lease of a running query: renewed while it runs, noticed when lost, released at its end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.checkpoint.beside.lease import NAME, LeaseWatch, read_lease
from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.coordinator.leases import Leases
from headrace.errors import Fenced, StateMissing


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(f"file:{tmp_path}")


def test_a_lease_beats_until_its_query_has_ended(files: LocalFiles) -> None:
    over = False
    leases = Leases("driver a", lambda query: over)
    watch = LeaseWatch(files)
    leases.take("q", "run", files)
    leases.take("q", "run", files)
    beats = []
    for _ in range(3):
        lease = read_lease(files)
        assert lease is not None
        assert (lease.run, lease.holder) == ("run", "driver a")
        beats.append(lease.beat)
        with pytest.raises(StateMissing, match="is running: driver a"):
            watch.refuse_live()
        watch = LeaseWatch(files)
        watch.refuse_live()
        leases.renew()
    assert beats == [0, 1, 2]
    over = True
    leases.renew()
    assert files.read(NAME) is None
    watch.refuse_live()


def test_the_driver_that_lost_its_lease_begins_no_batch(files: LocalFiles) -> None:
    mine, other = Leases("driver a", lambda query: False), Leases("driver b", lambda query: False)
    mine.take("q", "mine", files)
    other.take("q", "other", files)
    mine.check("mine")
    mine.renew()
    with pytest.raises(Fenced, match="the query was started again: driver b"):
        mine.check("mine")
    other.renew()
    mine.renew()
    mine.close()
    other.check("other")
    lease = read_lease(files)
    assert lease is not None
    assert lease.run == "other", "the one that lost releases nothing"
    other.close()
    assert read_lease(files) is None


def test_a_restart_in_the_same_driver_keeps_the_query(files: LocalFiles) -> None:
    leases = Leases("driver a", lambda query: False)
    leases.take("q", "first", files)
    leases.take("q", "second", files)
    leases.renew()
    leases.check("second")
    lease = read_lease(files)
    assert lease is not None
    assert (lease.run, lease.beat) == ("second", 1)


@pytest.mark.parametrize("text", ["", "{", "headrace lease 1\n{}\ncrc32 00000000\n"])
def test_a_damaged_lease_is_no_lease_and_is_written_anew(files: LocalFiles, text: str) -> None:
    leases = Leases("driver a", lambda query: False)
    leases.take("q", "run", files)
    files.write(NAME, text)
    assert read_lease(files) is None
    leases.renew()
    assert read_lease(files) is not None


def test_a_beat_that_cannot_be_written_is_tried_again(files: LocalFiles) -> None:
    leases, write = Leases("driver a", lambda query: False), files.write

    def fails(name: str, text: str) -> None:
        raise OSError("away")

    leases.take("q", "run", files)
    files.write = fails  # type: ignore[method-assign]
    leases.renew()
    files.write = write  # type: ignore[method-assign]
    leases.renew()
    leases.check("run")
    lease = read_lease(files)
    assert lease is not None
    assert lease.beat == 1


def test_a_query_that_ended_here_does_not_stop_its_own_recovery(files: LocalFiles) -> None:
    """Its hosts may still have versions to publish, or have died with them."""
    leases = Leases("driver a", lambda query: False)
    leases.take("q", "run", files)
    leases.release("q")
    watch = LeaseWatch(files)
    leases.renew()
    watch.refuse_live()
    leases.release("q")
    other = Leases("driver b", lambda query: False)
    leases.take("q", "again", files)
    other.take("q", "other", files)
    leases.release("q")
    assert read_lease(files) is not None, "another driver's lease stays"


def test_a_beat_during_a_restart_does_not_fence_the_new_start(files: LocalFiles) -> None:
    """The beat reads the lease of the earlier start while the later one is writing its own."""
    leases, write, has_read = Leases("driver a", lambda query: False), files.write, threading.Event()
    leases.take("q", "first", files)
    beat = threading.Thread(target=leases.renew)
    read = files.read

    def noted_read(name: str) -> str | None:
        text = read(name)
        if threading.current_thread() is beat:
            has_read.set()
        return text

    def slow_write(name: str, text: str) -> None:
        if not beat.is_alive():
            beat.start()
            has_read.wait(0.2)  # in vain where the beat waits for the write
        write(name, text)

    files.read = noted_read  # type: ignore[method-assign]
    files.write = slow_write  # type: ignore[method-assign]
    leases.take("q", "second", files)
    beat.join()
    leases.check("second")
    lease = read_lease(files)
    assert lease is not None
    assert lease.run == "second"
