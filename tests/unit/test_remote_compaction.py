"""Protects compaction elsewhere: whatever a compactor does, or fails to do, results stay exact, and a file
is named only after it was verified. A compaction's output is on storage before a commit adopts it."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from spoils import SPOILT, Wrong, late, nothing

from headrace.blob.files import FileBlobs
from headrace.blob.locations import Locations
from headrace.checkpoint.restore import read_manifest
from headrace.clock import SYSTEM_CLOCK
from headrace.compactor.server import CompactorDoor
from headrace.compactor.work import CompactionWork
from headrace.format.manifest import SegmentEntry
from headrace.format.names import LEASE, blob_name, home_of, leased_through, parse_manifest
from headrace.host.compaction.remote import RemoteCompaction
from headrace.host.compaction.workers import Workers
from headrace.host.state.service import PartitionService
from headrace.host.state.upkeep import Upkeep
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.plan.times import Times
from headrace.store.segments import compact
from headrace.testing.simulation.model import QUERY, SPEC, State, batch_of, state_of
from headrace.wire.compaction import CompactionRequest
from headrace.wire.contract import Ticket
from headrace.wire.listener import Handler, Listener, tcp_socket

SECRET = "s" * 64
BATCHES = 24
WITHIN_S = 60.0
IMPATIENT = Times(compactor_silent_s=0.5, compactor_job_s=1.0, compactor_barred_s=0.0)


@pytest.fixture(autouse=True)
def few_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three segments are enough for a compaction."""
    monkeypatch.setattr(compact, "FAN_IN_UNREAD", 3)


class Listening:
    """Compactors in this process, each with a handler of its own."""

    def __init__(self, *handlers: Handler) -> None:
        self.listeners = [Listener(tcp_socket("127.0.0.1"), SECRET, handler) for handler in handlers]

    def __enter__(self) -> list[str]:
        for listener in self.listeners:
            listener.start()
        return [f"127.0.0.1:{listener.port}" for listener in self.listeners]

    def __exit__(self, *_: object) -> None:
        for listener in self.listeners:
            listener.close()


class Query:
    """One partition's batches in a real host; shared storage is a directory, or a location."""

    def __init__(
        self,
        folder: Path,
        addresses: list[str],
        mode: CommitMode = "sync",
        start: int = 0,
        shared: str = "",
    ) -> None:
        self.shared, self.mode, self.upkeep = shared or str(folder / "shared"), mode, Upkeep()
        remote = RemoteCompaction(Workers(addresses, SECRET, times=IMPATIENT)) if addresses else None
        self.service = PartitionService(
            64 << 20, Locations(folder / f"local-{start}"), None, self.upkeep, remote=remote
        )
        self.start, self.phases, self.attempt = start, Counter[str](), 0

    def run(self, number: int) -> State:
        base, self.attempt = number - 1 if number else None, self.attempt + 1
        start = (f"s{self.start}", QUERY, SPEC, 0)
        ticket = Ticket(*start, number, base, self.attempt, self.shared, 3, self.mode)
        transaction = self.service.begin(ticket)
        transaction.apply(batch_of(rows_of(number)))
        state = state_of(transaction.finish([]))
        self.phases.update(span.phase for span in transaction.commit().spans)
        return state

    def abort(self, number: int) -> None:
        self.attempt += 1
        ticket = Ticket("s0", QUERY, SPEC, 0, number, number - 1, self.attempt, self.shared, 3)
        self.service.begin(ticket).abort()

    def play(self, batches: int = BATCHES) -> None:
        for number in range(batches):
            assert self.run(number) == expected(number)
            self.rest()

    def rest(self) -> None:
        """Waits for the job under way."""
        (partition,) = self.service.partitions
        jobs, tries = self.upkeep.jobs, 0
        while jobs.is_busy(partition.home.where):
            SYSTEM_CLOCK.sleep_ms(5)
            tries += 1
            assert tries < WITHIN_S * 200


def rows_of(number: int) -> list[tuple[str, int]]:
    return [(f"key-{(7 * number + key) % 19}", key) for key in range(9)]


def expected(number: int) -> State:
    state: State = {}
    for batch in range(number + 1):
        for key, amount in rows_of(batch):
            count, total = state.get(key, (0, 0))
            state[key] = (count + 1, total + amount)
    return {key: state[key] for key, _ in rows_of(number)}


def real(tmp_path: Path, jobs: int = 2) -> Handler:
    return CompactorDoor(CompactionWork(tmp_path / "compactor"), jobs)


@pytest.mark.parametrize("mode", COMMIT_MODES)
def test_compactors_take_the_work_from_the_host(tmp_path: Path, mode: CommitMode) -> None:
    with Listening(real(tmp_path), real(tmp_path)) as addresses:
        query = Query(tmp_path, addresses, mode)
        query.play()
        query.service.close()
    assert query.phases["remote"] >= 3
    assert query.phases["compaction"] == 0
    again = Query(tmp_path, [], mode, start=1)
    assert again.run(BATCHES) == expected(BATCHES), "shared storage alone has everything"
    again.service.close()


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_wrong_output_costs_time_only(tmp_path: Path, spoil: Any) -> None:
    work = Wrong(tmp_path, spoil)
    with Listening(CompactorDoor(work, 2)) as addresses:
        query = Query(tmp_path, addresses)
        query.play(12)
        query.service.close()
    assert work.requests >= 2
    assert query.phases["remote"] == 0
    assert query.phases["compaction"] >= 2
    again = Query(tmp_path, [], start=1)
    assert again.run(12) == expected(12)
    again.service.close()


def test_a_late_answer_is_of_no_use_and_its_file_is_no_harm(tmp_path: Path) -> None:
    work = Wrong(tmp_path, late)
    with Listening(CompactorDoor(work, 2)) as addresses:
        query = Query(tmp_path, addresses)
        query.play(8)
        query.service.close()
    assert query.phases["compaction"] >= 1
    assert query.phases["remote"] == 0


def test_a_dead_compactor_is_left_out_and_another_one_works(tmp_path: Path) -> None:
    def dying(peer: socket.socket, request: dict[str, Any]) -> None:
        """The connection closes without an answer."""

    with Listening(dying, real(tmp_path)) as addresses:
        query = Query(tmp_path, ["127.0.0.1:1", *addresses])
        query.play()
        query.service.close()
    assert query.phases["remote"] >= 1
    assert query.phases["compaction"] >= 1


def test_a_busy_compactor_declines(tmp_path: Path) -> None:
    with Listening(real(tmp_path, jobs=0)) as addresses:
        query = Query(tmp_path, addresses)
        query.play(8)
        query.service.close()
    assert query.phases["compaction"] >= 1


def test_a_stranger_gets_nothing(tmp_path: Path) -> None:
    work = Wrong(tmp_path, nothing)
    with Listening(CompactorDoor(work, 1)) as addresses:
        query = Query(tmp_path, [])
        remote = RemoteCompaction(Workers(addresses, "x" * 64, times=IMPATIENT))
        place = (64 << 20, Locations(tmp_path / "local"), None, query.upkeep)
        query.service = PartitionService(*place, remote=remote)
        query.play(8)
        query.service.close()
    assert work.requests == 0


def test_only_names_of_outputs_are_written(tmp_path: Path) -> None:
    entry = SegmentEntry("segments/x.segment", 1, 1, 0, 0, 0)
    request = CompactionRequest(
        str(tmp_path), "q/o/p0000", SPEC.to_json(), "rmw", "rows", "newest", (0,), None, None, (entry,), "x"
    )
    with pytest.raises(ValueError, match="not the name of a segment"):
        CompactionWork(tmp_path).run(request, threading.Event())
    assert CompactionRequest.of(request.to_json()) == request


@pytest.mark.parametrize("mode", COMMIT_MODES)
def test_an_output_is_on_storage_before_a_commit_adopts_it(tmp_path: Path, mode: CommitMode) -> None:
    query, before, adopted = Query(tmp_path, [], mode), set[str](), 0
    for number in range(12):
        stored = {path.name for path in (tmp_path / "shared").rglob("*.segment")}
        query.run(number)
        query.rest()
        (partition,) = query.service.partitions
        assert partition.store is not None
        leased = {one.file.id for one in partition.store.segments if leased_through(one.file.id) >= LEASE}
        adopted += len(leased - before)
        if mode != "sync":  # the job may have ended just before the commit
            stored = {path.name for path in (tmp_path / "shared").rglob("*.segment")}
        assert file_names(leased) <= stored
        logged = {path.name for path in (tmp_path / "local-0").rglob("*.segment")}
        assert not file_names(leased) & logged, "no commit uploads it"
        before |= leased
    query.service.close()
    assert adopted >= 2


def test_an_output_that_no_commit_adopts_is_deleted(tmp_path: Path) -> None:
    query = Query(tmp_path, [])
    for number in range(3):
        query.run(number)
        query.rest()
    (output,) = leased_files(tmp_path)
    query.abort(3)  # drops the store, and the job with it
    for number in range(3, 8):
        query.run(number)
        query.rest()
    assert not output.exists()
    assert leased_files(tmp_path) <= named_files(tmp_path) | newest_output(tmp_path)
    query.service.close()


@pytest.mark.parametrize("ends", ["host", "query"])
def test_an_output_that_waits_is_deleted_at_the_end(tmp_path: Path, ends: str) -> None:
    query = Query(tmp_path, [])
    for number in range(3):
        query.run(number)
        query.rest()
    (output,) = leased_files(tmp_path)
    assert output not in named_files(tmp_path)
    if ends == "query":
        (partition,) = query.service.partitions
        partition.rest(0.0)
        query.rest()
        assert not output.exists()
    query.service.close()
    assert not output.exists()


def file_names(names: set[str]) -> set[str]:
    return {name.rpartition("/")[2] for name in names}


def leased_files(folder: Path) -> set[Path]:
    files = (folder / "shared").rglob("*.segment")
    return {path for path in files if leased_through(path.name) >= LEASE}


def named_files(folder: Path) -> set[Path]:
    blobs = FileBlobs.open(folder / "shared", create=False)
    manifests = [name for name in blobs.list("") if parse_manifest(name)]
    entries = [(name, one) for name in manifests for one in read_manifest(blobs, name).segments]
    return {folder / "shared" / blob_name(home_of(name), one.name) for name, one in entries}


def newest_output(folder: Path) -> set[Path]:
    """The output that waits for a commit."""
    return set(sorted(leased_files(folder))[-1:])


def test_a_lease_that_is_over_is_not_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.format.names.LEASE", -1)
    query = Query(tmp_path, [])
    query.play(8)
    (partition,) = query.service.partitions
    assert partition.store is not None
    assert len(partition.store.segments) == 8, "every output came too late"
    query.service.close()
