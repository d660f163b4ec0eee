"""Protects `headrace recover` and what `hr.start` does first, over real files.

What is in this machine's log is published, a lost batch is taken back, a query that runs is left alone.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.blob.files import FileBlobs
from headrace.blob.locations import Locations
from headrace.checkpoint.beside.lease import Lease
from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.records import OperatorRecord
from headrace.checkpoint.runs import claim_run, newest_run
from headrace.checkpoint.steps import unobserved
from headrace.cli import recover as command
from headrace.errors import StateMissing
from headrace.host.state.service import PartitionService
from headrace.host.state.upkeep import Upkeep
from headrace.plan.partitions.layouts import first_layout
from headrace.plan.times import TIMES
from headrace.recovery import recover
from headrace.recovery.reconcile import replay_due, settle_replay
from headrace.recovery.recover import Recovery
from headrace.recovery.redo import StateOf, redo
from headrace.testing.clock import ManualClock
from headrace.testing.simulation.model import QUERY, SPEC, State, batch_of, state_of
from headrace.testing.simulation.stepped_crew import SteppedExecutor, SteppedJobs, stepped_crew
from headrace.wire.contract import Ticket


class Checkpoint:
    """Three batches of which the last was acknowledged and never published: the host died."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shared, self.local = folder, folder / "state", folder / "local"
        folder.mkdir(exist_ok=True)
        self.files = LocalFiles(f"file:{folder}")
        (folder / "metadata").write_text(json.dumps({"id": QUERY}))
        for name in ("commits", "offsets", "headrace-operators"):
            (folder / name).mkdir()
        for number in range(3):
            (folder / "commits" / str(number)).touch()
        for number in range(4):
            (folder / "offsets" / str(number)).touch()
        record = OperatorRecord(str(self.shared), SPEC, (0, 1, 2, 3))
        (folder / "headrace-operators" / "sums.json").write_text(record.to_json())
        service = self.serve()
        for number in range(3):
            self.run(service, number)

    def serve(self) -> PartitionService:
        self.jobs = SteppedJobs(random.Random(0))
        crew = stepped_crew(self.jobs, ManualClock(), unobserved)
        locations = Locations(self.local)
        return PartitionService(64 << 20, locations, crew, Upkeep(SteppedExecutor(self.jobs)))

    def run(self, service: PartitionService, number: int, start: str = "first") -> State:
        base = number - 1 if number else None
        where = str(self.shared)
        ticket = Ticket(start, QUERY, SPEC, 0, number, base, number + 1, where, 3, "async")
        transaction = service.begin(ticket)
        transaction.apply(batch_of([("a", number)]))
        state = state_of(transaction.finish([]))
        transaction.commit()
        return state

    @property
    def published(self) -> list[int]:
        return sorted(int(path.name[1:13]) for path in self.shared.glob("**/*.manifest"))

    @property
    def committed(self) -> list[str]:
        return self.files.list("commits")

    def recovery(self, clock: ManualClock | None = None) -> Recovery:
        return Recovery(self.files, self.local, clock or ManualClock())

    def command(self, *, yes: bool) -> tuple[int, str]:
        lines: list[str] = []
        code = command.recover(str(self.folder), self.local, yes, lines.append, ManualClock())
        return code, "\n".join(lines)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def test_what_is_in_the_log_is_published_and_spark_left_alone(checkpoint: Checkpoint) -> None:
    assert checkpoint.published == [0, 1]
    code, output = checkpoint.command(yes=False)
    assert (code, checkpoint.published) == (0, [0, 1])
    assert "is in this machine's log" in output
    assert "with --yes" in output
    code, output = checkpoint.command(yes=True)
    assert (code, checkpoint.published) == (0, [0, 1, 2])
    assert checkpoint.committed == ["0", "1", "2"]
    assert checkpoint.run(checkpoint.serve(), 3, "second") == {"a": (4, 6)}
    assert checkpoint.command(yes=True)[1].endswith("nothing to do")


@pytest.mark.parametrize("left", [0, 40, -3])
def test_a_torn_log_entry_is_a_lost_batch(checkpoint: Checkpoint, left: int) -> None:
    """After a power loss the entry has its name and not its content."""
    (entry,) = checkpoint.local.glob("log/**/*.log")
    entry.write_bytes(entry.read_bytes()[:left])
    code, report = checkpoint.command(yes=True)
    assert (code, checkpoint.committed) == (0, ["0", "1"])
    assert "state of batch 2 is missing: sums partition 0" in report
    assert entry.with_name(f"{entry.name}.damaged").exists()
    assert replay_due(checkpoint.files) == 2
    assert checkpoint.run(checkpoint.serve(), 2, "second") == {"a": (3, 3)}


def test_a_lost_batch_is_taken_back(checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.local)
    code, output = checkpoint.command(yes=False)
    assert (code, checkpoint.committed) == (0, ["0", "1", "2"])
    assert "state of batch 2 is missing: sums partition 0" in output
    repair = checkpoint.recovery().repair()
    assert (repair.decision.action, repair.decision.batch) == ("withdraw", 2)
    assert checkpoint.committed == ["0", "1"]
    assert checkpoint.files.list("offsets") == ["0", "1", "2"]
    assert replay_due(checkpoint.files) == 2
    assert checkpoint.recovery().repair().decision.action == "nothing", "once is enough"
    service = checkpoint.serve()
    assert checkpoint.run(service, 2, "second") == {"a": (3, 3)}
    (checkpoint.folder / "commits" / "2").touch()
    assert replay_due(checkpoint.files) is None
    assert settle_replay(checkpoint.files) == ["offsets/3"]
    assert checkpoint.files.list("offsets") == ["0", "1", "2", "3"]
    assert checkpoint.run(service, 3, "second") == {"a": (4, 6)}


def test_a_replay_that_breaks_off_is_settled_by_the_next_start(tmp_path: Path) -> None:
    for nth in itertools.count():
        checkpoint, dying = Checkpoint(tmp_path / str(nth)), Dying(nth, applied=False)
        (checkpoint.folder / "offsets" / "3").write_text("the plan")
        shutil.rmtree(checkpoint.local)
        checkpoint.recovery().repair()
        assert settle_replay(checkpoint.files) == [], "the replay is still due"
        (checkpoint.folder / "commits" / "2").touch()
        files = LocalFiles(checkpoint.files.root)
        files.move = dying.wrap(files.move)  # type: ignore[method-assign]
        with suppress(Interrupted):
            settle_replay(files)
        settle_replay(checkpoint.files)
        assert checkpoint.files.read("offsets/3") == "the plan"
        assert checkpoint.files.list("headrace-withdrawn") == ["commits", "offsets", "replayed"]
        if dying.left >= 0:
            break
    assert nth == 3, "the plan, its checksum and the note"


def test_a_plan_that_spark_made_anew_is_not_replaced(checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.local)
    checkpoint.recovery().repair()
    (checkpoint.folder / "commits" / "2").touch()
    (checkpoint.folder / "offsets" / "3").write_text("new")
    assert settle_replay(checkpoint.files) == []
    assert checkpoint.files.read("offsets/3") == "new"


def test_after_a_rollback_by_hand_no_other_batch_is_replayed(checkpoint: Checkpoint) -> None:
    """The next batch is not the noted one, and its sink has not seen it."""
    shutil.rmtree(checkpoint.local)
    checkpoint.recovery().repair()
    (checkpoint.folder / "commits" / "1").unlink()
    (checkpoint.folder / "offsets" / "2").unlink()
    assert replay_due(checkpoint.files) is None
    assert settle_replay(checkpoint.files) == []
    (checkpoint.folder / "commits" / "1").touch()
    assert replay_due(checkpoint.files) is None, "the note is filed for good"


@pytest.mark.parametrize("planned", [None, "3"])
def test_a_replay_needs_the_plan_of_its_batch(checkpoint: Checkpoint, planned: str | None) -> None:
    """Spark would plan new rows, or run the batch after it, and no sink would get them."""
    shutil.rmtree(checkpoint.local)
    checkpoint.recovery().repair()
    if planned is None:
        (checkpoint.folder / "offsets" / "2").unlink()
    else:
        (checkpoint.folder / "offsets" / planned).touch()
    with pytest.raises(StateMissing, match=r"batch 2 .* is to be replayed, but its plan is not the newest"):
        replay_due(checkpoint.files)


def test_a_note_of_the_release_before_is_read(checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.local)
    checkpoint.recovery().repair()
    checkpoint.files.write("headrace-withdrawn/replay", "2")
    assert replay_due(checkpoint.files) == 2


def test_more_than_one_lost_batch_is_refused_and_nothing_is_touched(checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.local)
    for manifest in checkpoint.shared.glob("**/v000000000001-*.manifest"):
        manifest.unlink()
    code, output = checkpoint.command(yes=True)
    assert (code, checkpoint.committed) == (1, ["0", "1", "2"])
    assert "nothing was changed" in output
    with pytest.raises(StateMissing, match="cannot be brought together"):
        checkpoint.recovery().repair()


class Moving(ManualClock):
    """While somebody waits, the query commits another batch."""

    def __init__(self, commits: Path) -> None:
        super().__init__()
        self._commits = commits

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms)
        (self._commits / "3").touch()


def test_a_query_that_runs_is_left_alone(checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.local)
    with pytest.raises(StateMissing, match="is running"):
        checkpoint.recovery(Moving(checkpoint.folder / "commits")).repair()
    assert checkpoint.committed == ["0", "1", "2", "3"]


class Beating(ManualClock):
    """While somebody waits, the driver of the query renews its lease; its upload is slow."""

    def __init__(self, files: LocalFiles) -> None:
        super().__init__()
        self._files, self._lease = files, Lease("run", "application a on b")

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms)
        self._lease = self._lease.renewed()
        self._files.write("headrace-lease", self._lease.to_text())


def test_a_query_whose_commits_take_long_is_left_alone(checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.local)
    blobs = Locations(checkpoint.folder / "other").open(str(checkpoint.shared), create=False)
    before = newest_run(blobs, QUERY)
    with pytest.raises(StateMissing, match="is running: application a on b"):
        checkpoint.recovery(Beating(checkpoint.files)).repair()
    assert checkpoint.committed == ["0", "1", "2"]
    assert checkpoint.files.list("offsets") == ["0", "1", "2", "3"]
    assert newest_run(blobs, QUERY) == before, "the live run was not fenced"


def test_a_run_is_claimed_before_anything_is_withdrawn(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was only paused must not commit a batch after the withdrawn one."""
    shutil.rmtree(checkpoint.local)
    checkpoint.files.write("headrace-lease", Lease("run", "a dead driver", 7).to_text())
    blobs = Locations(checkpoint.folder / "other").open(str(checkpoint.shared), create=False)
    before, at_move, clock, claimed_ms = newest_run(blobs, QUERY), [], ManualClock(), []
    move, files = checkpoint.files.move, checkpoint.files

    def moved(name: str, to: str) -> None:
        at_move.append(newest_run(blobs, QUERY))
        move(name, to)

    def claimed(*arguments: Any, **named: Any) -> int:
        claimed_ms.append(clock.monotonic_ms())
        return claim_run(*arguments, **named)

    monkeypatch.setattr(files, "move", moved)
    monkeypatch.setattr(recover, "claim_run", claimed)
    assert checkpoint.recovery(clock).repair().decision.action == "withdraw"
    assert set(at_move) == {before + 1}
    assert claimed_ms[0] >= 1000 * TIMES.lease_s
    assert clock.monotonic_ms() - claimed_ms[0] > 1000 * TIMES.run_fresh_s, "hosts have noticed it"


class Publishing(ManualClock):
    """While somebody waits, the host of another machine publishes what is in its log."""

    def __init__(self, local: Path, state: StateOf) -> None:
        super().__init__()
        self._local, self._state = local, state

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms)
        if len(self.slept_ms) == 3:
            redo(self._local, self._state, 2)


def test_a_gap_that_closes_is_no_gap(checkpoint: Checkpoint) -> None:
    elsewhere = checkpoint.local.rename(checkpoint.folder / "elsewhere")
    clock = Publishing(elsewhere, StateOf(str(checkpoint.shared), QUERY, SPEC.name, first_layout(1)))
    assert checkpoint.recovery(clock).repair().decision.action == "nothing"
    assert len(clock.slept_ms) == 3
    assert (checkpoint.published, checkpoint.committed) == ([0, 1, 2], ["0", "1", "2"])


def test_a_gap_is_withdrawn_only_when_the_hosts_of_a_dead_driver_are_gone(checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.local)
    clock = ManualClock()
    assert checkpoint.recovery(clock).repair().decision.action == "withdraw"
    assert sum(clock.slept_ms) >= 1000 * (TIMES.driver_gone_s + TIMES.host_leave_s)


class Interrupted(Exception):
    """The process died."""


class Dying:
    """Dies at one of the changes that go through it: just before it, or right after."""

    def __init__(self, nth: int, *, applied: bool) -> None:
        self.left, self.applied = nth, applied

    def wrap(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == -1 and not self.applied:
                raise Interrupted
            result = change(*arguments)
            if self.left == -1:
                raise Interrupted
            return result

        return changed


@pytest.mark.parametrize("applied", [False, True])
def test_a_withdrawal_that_dies_at_any_change_is_finished_by_the_next(
    tmp_path: Path, applied: bool
) -> None:
    for nth in itertools.count():
        checkpoint, dying = Checkpoint(tmp_path / str(nth)), Dying(nth, applied=applied)
        shutil.rmtree(checkpoint.local)
        files = LocalFiles(checkpoint.files.root)
        files.write, files.move = dying.wrap(files.write), dying.wrap(files.move)  # type: ignore[method-assign]
        with suppress(Interrupted):
            Recovery(files, checkpoint.local, ManualClock()).repair()
        checkpoint.recovery().repair()
        assert checkpoint.committed == ["0", "1"]
        assert checkpoint.files.list("offsets") == ["0", "1", "2"]
        assert replay_due(checkpoint.files) == 2
        assert checkpoint.run(checkpoint.serve(), 2, "second") == {"a": (3, 3)}
        if dying.left >= 0:
            break
    assert nth == 5, "a note, and two files each of offsets/3 and commits/2"


@pytest.mark.parametrize("applied", [False, True])
def test_a_redo_that_dies_anywhere_is_finished_by_the_next(
    tmp_path: Path, applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nth in itertools.count():
        checkpoint, dying = Checkpoint(tmp_path / str(nth)), Dying(nth, applied=applied)
        with monkeypatch.context() as patched:
            for name in ("put_if_absent", "put_file", "delete"):
                patched.setattr(FileBlobs, name, dying.wrap(getattr(FileBlobs, name)))
            with suppress(Interrupted):
                checkpoint.recovery().repair()
        checkpoint.recovery().repair()
        assert checkpoint.published == [0, 1, 2]
        assert checkpoint.committed == ["0", "1", "2"]
        assert checkpoint.run(checkpoint.serve(), 3, "second") == {"a": (4, 6)}
        if dying.left >= 0:
            break
    assert nth >= 2, "a segment and a manifest"
