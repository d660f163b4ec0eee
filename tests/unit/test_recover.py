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
from headrace.checkpoint.reconcile import replay_due, replayed
from headrace.checkpoint.steps import unobserved
from headrace.cli.recover import recover
from headrace.coordinator.records import OperatorRecord
from headrace.coordinator.recover import Recovery
from headrace.errors import StateMissing
from headrace.host.contract import Ticket
from headrace.host.service import PartitionService
from headrace.host.upkeep import Upkeep
from headrace.spark.checkpoint_files import LocalFiles
from headrace.testing.clock import ManualClock
from headrace.testing.simulation import QUERY, SPEC, State, batch_of, state_of
from headrace.testing.stepped_crew import SteppedExecutor, SteppedJobs, stepped_crew


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
        found = state_of(transaction.finish([]))
        transaction.commit()
        return found

    @property
    def published(self) -> list[int]:
        return sorted(int(path.name[1:13]) for path in self.shared.glob("**/*.manifest"))

    @property
    def committed(self) -> list[str]:
        return self.files.list("commits")

    def recovery(self, clock: ManualClock | None = None) -> Recovery:
        return Recovery(self.files, self.local, clock or ManualClock())

    def command(self, *, yes: bool) -> tuple[int, str]:
        said: list[str] = []
        code = recover(str(self.folder), self.local, yes, said.append)
        return code, "\n".join(said)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def test_what_is_in_the_log_is_published_and_spark_left_alone(checkpoint: Checkpoint) -> None:
    assert checkpoint.published == [0, 1]
    code, said = checkpoint.command(yes=False)
    assert (code, checkpoint.published) == (0, [0, 1])
    assert "is in this machine's log" in said
    assert "with --yes" in said
    code, said = checkpoint.command(yes=True)
    assert (code, checkpoint.published) == (0, [0, 1, 2])
    assert checkpoint.committed == ["0", "1", "2"]
    assert checkpoint.run(checkpoint.serve(), 3, "second") == {"a": (4, 6)}
    assert checkpoint.command(yes=True)[1].endswith("nothing to do")


def test_a_lost_batch_is_taken_back(checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.local)
    code, said = checkpoint.command(yes=False)
    assert (code, checkpoint.committed) == (0, ["0", "1", "2"])
    assert "state of batch 2 is missing: sums partition 0" in said
    found = checkpoint.recovery().repair()
    assert (found.decision.action, found.decision.batch) == ("withdraw", 2)
    assert checkpoint.committed == ["0", "1"]
    assert checkpoint.files.list("offsets") == ["0", "1", "2"]
    assert replay_due(checkpoint.files) == 2
    assert checkpoint.recovery().repair().decision.action == "nothing", "once is enough"
    service = checkpoint.serve()
    assert checkpoint.run(service, 2, "second") == {"a": (3, 3)}
    (checkpoint.folder / "commits" / "2").touch()
    assert replay_due(checkpoint.files) is None
    replayed(checkpoint.files)
    assert checkpoint.run(service, 3, "second") == {"a": (4, 6)}


def test_more_than_one_lost_batch_is_refused_and_nothing_is_touched(checkpoint: Checkpoint) -> None:
    shutil.rmtree(checkpoint.local)
    for manifest in checkpoint.shared.glob("**/v000000000001-*.manifest"):
        manifest.unlink()
    code, said = checkpoint.command(yes=True)
    assert (code, checkpoint.committed) == (1, ["0", "1", "2"])
    assert "nothing was changed" in said
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
