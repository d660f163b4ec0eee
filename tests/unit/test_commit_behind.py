"""Protects a partition whose commits run behind its batches.

What each batch may read, what a full disk, lost storage or another host does to it, and that Spark's next
attempt gets it going again.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.blob.base import Blobs
from headrace.blob.files import FileBlobs
from headrace.blob.locations import Locations
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.logged_files import seal_entry
from headrace.checkpoint.pipeline import CommitPipeline
from headrace.checkpoint.steps import Moment
from headrace.coordinator.ended import resident_queries
from headrace.errors import StateMissing, TryAgain
from headrace.host.state.service import PartitionService
from headrace.host.state.upkeep import Upkeep
from headrace.plan.options import CommitMode
from headrace.store.segments.writer import write_segment
from headrace.testing.clock import ManualClock
from headrace.testing.faults.faulty_blobs import FaultyBlobs, Outcome
from headrace.testing.simulation.model import QUERY, SPEC, State, batch_of, state_of
from headrace.testing.simulation.stepped_crew import SteppedExecutor, SteppedJobs, stepped_crew
from headrace.wire.contract import Hidden, Summary, Ticket


class Host:
    """A host whose background work stands still until it is told to go on."""

    def __init__(self, folder: Path, local: str = "local", *, fsync: bool = False) -> None:
        self.folder, self.local = folder, folder / local
        self.jobs, self.clock, self.away = SteppedJobs(random.Random(0)), ManualClock(), False
        crew = stepped_crew(self.jobs, self.clock, self._probe)
        locations = Locations(self.local, wrap=self._wrap, clock=self.clock)
        upkeep = Upkeep(SteppedExecutor(self.jobs))
        self.service = PartitionService(64 << 20, locations, crew, upkeep, fsync=fsync)
        self.moments: list[Moment] = []
        self.at: Callable[[Moment], None] = lambda moment: None

    def _probe(self, moment: Moment) -> None:
        self.moments.append(moment)
        self.at(moment)

    def _wrap(self, blobs: Blobs) -> Blobs:
        return FaultyBlobs(blobs, lambda operation: Outcome.REFUSED if self.away else Outcome.DONE)

    def run(
        self, number: int, attempt: int | None = None, mode: CommitMode = "async", query: str = QUERY
    ) -> Summary:
        summary, _ = self.results(number, attempt, mode, query)
        return summary

    def results(
        self, number: int, attempt: int | None = None, mode: CommitMode = "async", query: str = QUERY
    ) -> tuple[Summary, State]:
        ticket = self.ticket(number, number + 1 if attempt is None else attempt, mode)
        transaction = self.service.begin(replace(ticket, query=query))
        try:
            transaction.apply(batch_of([("a", 1), (f"b{number}", 1)]))
            state = state_of(transaction.finish([]))
            return transaction.commit(), state
        except Exception:
            transaction.abort()
            raise

    def ticket(self, number: int, attempt: int, mode: CommitMode = "async") -> Ticket:
        base = number - 1 if number else None
        shared = str(self.folder / "shared")
        return Ticket("start", QUERY, SPEC, 0, number, base, attempt, shared, 3, mode)

    def manifests(self) -> list[int]:
        return sorted(int(path.name[1:13]) for path in (self.folder / "shared").glob("**/*.manifest"))

    def logged(self) -> list[str]:
        return sorted(path.name[:13] for path in self.local.glob("log/**/*.log"))


def flipped(data: bytes) -> bytes:
    """The data with one bit of its middle flipped."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_batch_returns_before_its_state_is_on_shared_storage(host: Host) -> None:
    host.run(0)
    assert host.manifests() == []
    assert host.logged() == ["v000000000000"]
    _, state = host.results(1)
    assert state["a"] == (2, 2)
    assert host.manifests() == [0], "ack 2 of batch 0 came before ack 1 of batch 1"
    host.jobs.drain()
    assert host.manifests() == [0, 1]
    assert host.logged() == []


def test_upload_mode_waits_for_the_seal_only(host: Host) -> None:
    host.run(0, mode="upload")
    assert Moment.SEALED in host.moments
    assert host.manifests() == []


def test_progress_says_what_was_hidden(host: Host) -> None:
    takes_ms = {Moment.SEALING: 7.0, Moment.UPLOADING: 5.0, Moment.PUBLISHING: 3.0}
    host.at = lambda moment: host.clock.advance_ms(takes_ms.get(moment, 0.0))
    first = host.run(0)
    assert (first.commit, first.hidden, first.publish_ms) == ("async", None, 0.0)
    hidden = host.run(1).hidden
    assert hidden is not None
    assert replace(hidden, spans=()) == Hidden(version=0, seal_ms=7.0, upload_ms=5.0, publish_ms=3.0)


def test_an_aborted_batch_reads_the_one_before_from_local_files(host: Host) -> None:
    host.run(0)
    for _ in range(2):
        host.service.begin(host.ticket(1, attempt=2)).abort()
    assert host.manifests() == [], "nothing was waited for"
    assert host.results(1, attempt=3)[1]["a"] == (2, 2)


def test_a_host_that_follows_goes_on_from_the_log(host: Host, tmp_path: Path) -> None:
    host.run(0)
    host.run(1)
    after = Host(tmp_path)
    assert after.results(2)[1]["a"] == (3, 3)
    assert after.moments[:2] == [Moment.RECOVERING, Moment.RECOVERED]
    assert after.manifests() == [0, 1]


def test_a_host_goes_on_when_the_one_before_publishes_what_it_is_about_to_read(
    host: Host, tmp_path: Path
) -> None:
    host.run(0)
    after = Host(tmp_path)
    after.at = lambda moment: host.jobs.drain() if moment is Moment.RECOVERING else None
    assert after.results(1)[1]["a"] == (2, 2)
    assert after.moments[0] is Moment.RECOVERING
    after.jobs.drain()
    assert (after.manifests(), after.logged()) == ([0, 1], [])


def test_a_host_goes_on_when_the_one_before_removes_what_it_just_sealed(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run(0)
    plain = Path.replace

    def then_removed(self: Path, target: Path) -> Path:
        plain(self, target)
        monkeypatch.setattr(Path, "replace", plain)
        host.jobs.drain()
        assert not target.exists()
        return target

    monkeypatch.setattr(Path, "replace", then_removed)
    after = Host(tmp_path)
    assert after.results(1)[1]["a"] == (2, 2)
    assert Path.replace is plain
    after.jobs.drain()
    assert (after.manifests(), after.logged()) == ([0, 1], [])


def test_a_machine_that_has_neither_says_what_to_do(host: Host, tmp_path: Path) -> None:
    host.run(0)
    with pytest.raises(StateMissing, match="version 0 is missing") as error:
        Host(tmp_path, local="another").run(1)
    assert "hr.start" in error.value.hint
    assert "headrace recover" in error.value.hint


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


def test_storage_that_stays_away_fails_the_next_commit_and_the_attempt_after_it_works(host: Host) -> None:
    host.run(0)
    host.service.begin(host.ticket(1, attempt=2)).abort()
    host.away = True
    with pytest.raises(TryAgain, match=r"refused|could not be read"):
        host.run(1, attempt=3)
    host.away = False
    assert host.results(1, attempt=4)[1]["a"] == (2, 2)
    host.jobs.drain()
    assert host.manifests() == [0, 1]


def test_a_base_that_another_host_wrote_again_is_read_again(host: Host, tmp_path: Path) -> None:
    host.run(0)
    host.jobs.drain()
    other = Host(tmp_path, local="another")
    other.run(0, attempt=5)
    other.jobs.drain()
    with pytest.raises(TryAgain, match="written again"):
        host.run(1, attempt=6)
    assert host.results(1, attempt=7)[1]["a"] == (2, 2)


def test_a_replayed_batch_takes_the_place_of_the_one_that_was_logged(host: Host) -> None:
    host.run(0)
    host.run(1)
    assert host.results(1, attempt=9)[1]["a"] == (2, 2)
    assert len(host.logged()) == 1
    assert host.results(2, attempt=10)[1]["a"] == (3, 3)


def test_an_attempt_that_is_published_late_leaves_the_files_of_the_newer_one(host: Host) -> None:
    host.run(0, attempt=1, mode="upload")

    def replay(moment: Moment) -> None:
        if moment is Moment.PUBLISHED:
            host.at = lambda moment: None
            host.run(0, attempt=2, mode="upload")

    host.at = replay
    while host.at is replay:
        host.jobs.step()
    host.service.begin(host.ticket(1, attempt=3)).abort()  # the next attempt reads from files
    _, state = host.results(1, attempt=4)
    assert state["a"] == (2, 2)


def test_an_epoch_that_is_logged_while_the_next_batch_waits_is_waited_for_too(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking at the pipeline and taking the partition, the batch before may get its log entry."""
    first = host.service.begin(host.ticket(0, attempt=1))
    first.apply(batch_of([("a", 1)]))
    list(first.finish([]))
    plain, waits = CommitPipeline.await_sealed, []

    def overtaken(pipeline: CommitPipeline, version: int | None) -> None:
        plain(pipeline, version)
        waits.append(version)
        if len(waits) == 1:
            first.commit()

    monkeypatch.setattr(CommitPipeline, "await_sealed", overtaken)
    assert host.results(1)[1]["a"] == (2, 2)
    assert waits == [0, 0]


@pytest.mark.parametrize(
    ("mode", "moment"),
    [
        ("async", Moment.LOGGED),
        ("upload", Moment.LOGGED),
        ("upload", Moment.SEALING),
        ("sync", Moment.PUBLISHED),
    ],
)
def test_a_commit_that_fails_after_the_point_of_no_return_counts_once(
    host: Host, tmp_path: Path, mode: CommitMode, moment: Moment
) -> None:
    """Its entry or manifest is there, its task has failed: the next attempt begins from the base again."""
    host.run(0, mode=mode)
    host.jobs.drain()
    host.at = failing_at(moment)
    with pytest.raises(TryAgain, match="injected"):
        host.run(1, mode=mode)
    host.at = lambda moment: None
    assert host.results(1, attempt=7, mode=mode)[1]["a"] == (2, 2)
    assert host.results(2, attempt=8, mode=mode)[1]["a"] == (3, 3)
    host.jobs.drain()
    assert Host(tmp_path, local="another").results(3, attempt=9)[1]["a"] == (4, 4)


def failing_at(wanted: Moment) -> Callable[[Moment], None]:
    def fail(moment: Moment) -> None:
        if moment is wanted:
            raise TryAgain("an injected fault")

    return fail


@pytest.mark.parametrize("is_published", [True, False])
def test_ended_queries_keep_neither_memory_nor_files(host: Host, is_published: bool) -> None:
    """Nothing of an ended query stays, also where its last epoch is published only later."""
    stores = []
    for number in range(5):
        query = f"query-{number}"
        host.run(0, attempt=2 * number + 1, query=query, mode="upload")
        host.run(1, attempt=2 * number + 2, query=query, mode="upload")
        stores += [weakref.ref(partition.store) for partition in host.service.partitions]
        if is_published:
            host.jobs.drain()
        host.service.ended([query])
        gc.collect()
        assert [store() for store in stores] == [None] * len(stores)
        assert open_files(host.folder) == []
        assert len(host.service.partitions) == (0 if is_published else 1)
        host.jobs.drain()
        host.service.ended([query])
        assert host.service.status()["partitions"] == []


def test_two_hundred_ended_queries_leave_what_five_leave(tmp_path: Path) -> None:
    """Memory, descriptors and disk of a host whose application starts queries without end."""
    host = Host(tmp_path)

    def left(queries: range) -> tuple[int, ...]:
        for number in queries:
            for batch in range(2):
                host.run(batch, query=f"query-{number}")
            host.service.ended([f"query-{number}"])  # its last epoch is not published yet
            host.jobs.drain()
            host.service.ended(resident_queries(host.service.status()))
        files = len(list(host.local.rglob("*")))
        status, descriptors = host.service.status(), len(os.listdir("/proc/self/fd"))
        return files, descriptors, len(status["partitions"]), host.service.starts

    assert left(range(5)) == left(range(5, 200))
    host.service.close()


def test_a_query_that_ended_starts_again(host: Host) -> None:
    host.run(0)
    host.jobs.drain()
    host.service.ended([QUERY])
    assert host.results(1)[1]["a"] == (2, 2)


def open_files(folder: Path) -> list[str]:
    """Open descriptors of files in `folder`, also of deleted ones."""
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            targets.append(os.readlink(link))
    return [target for target in targets if target.startswith(str(folder))]


@pytest.mark.parametrize("mode", ["sync", "upload", "async"])
def test_a_segment_deleted_under_a_running_host_is_noticed_before_a_version_names_it(
    host: Host, mode: CommitMode
) -> None:
    for number in range(3):
        host.run(number, mode=mode)
    host.jobs.drain()
    next((host.folder / "shared").glob("**/*.segment")).unlink()

    def go_on() -> None:
        for number in (3, 4):
            host.run(number, mode=mode)

    with pytest.raises((StateMissing, TryAgain), match=r"\.segment is gone"):
        go_on()
    assert host.manifests() == [0, 1, 2]


def test_a_start_after_the_runs_were_lost_is_refused(host: Host, tmp_path: Path) -> None:
    for number in range(2):
        host.run(number, mode="sync")
    shutil.rmtree(next((host.folder / "shared").glob("*/runs")))
    with pytest.raises(StateMissing, match="lost its runs"):
        Host(tmp_path).run(2, mode="sync")


def test_closing_a_host_publishes_what_is_under_way(host: Host) -> None:
    host.run(0)
    host.service.close()
    assert host.manifests() == [0]


def no_space(*_: object) -> list[int]:
    raise OSError(28, "No space left on device")
