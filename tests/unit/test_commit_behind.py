"""Protects a partition whose commits run behind its batches.

What each batch may read, what a full disk, lost storage or another host does to it, and that Spark's next
attempt gets it going again.
"""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from stepped_host import Host

from headrace.checkpoint.pipeline import CommitPipeline
from headrace.checkpoint.steps import Moment
from headrace.coordinator.ended import resident_queries
from headrace.errors import StateMissing, TryAgain
from headrace.plan.options import CommitMode
from headrace.testing.simulation.model import QUERY, batch_of
from headrace.wire.contract import Hidden


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
