"""Protects the commit pipeline's steps: their order, redo and poison, and what waiting callers are told."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.checkpoint.pipeline import CommitPipeline
from headrace.checkpoint.steps import Limits, Moment, Step, Verdict
from headrace.errors import Fenced, HeadraceError, StateMissing, TryAgain
from headrace.plan.times import TIMES
from headrace.testing.clock import ManualClock
from headrace.testing.simulation.stepped_crew import SteppedJobs, stepped_crew

STALLED_MS = TIMES.step_stalled_s * 1000


class Recorded:
    """Work that remembers what was asked of it, and fails as often as it is told to."""

    nbytes = 0  # of its file

    def __init__(self, version: int = 1, **failures: list[Exception]) -> None:
        self.version = version
        self.done: list[str] = []
        self._failures = failures

    def _do(self, name: str, text: str = "") -> None:
        self.done.append(text or name)
        if self._failures.get(name):
            raise self._failures[name].pop(0)

    def seal(self, is_current: Callable[[], bool], *, again: bool) -> None:
        self._do("seal", "seal again" if again else "seal")

    def upload(self, progressed: Callable[[int], None]) -> None:
        progressed(self.nbytes)
        self._do("upload")

    def publish(self) -> None:
        self._do("publish")

    def retire(self) -> None:
        self._do("retire")


class Lab:
    def __init__(self) -> None:
        self.jobs, self.clock, self.moments = SteppedJobs(random.Random(0)), ManualClock(), []
        self.away = False
        crew = stepped_crew(self.jobs, self.clock, self.moments.append)
        self.pipeline = CommitPipeline(crew, "p", lambda: self.away)


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_the_steps_come_in_their_order(lab: Lab) -> None:
    work = Recorded()
    epoch = lab.pipeline.start(work)
    lab.pipeline.await_sealed(1)
    assert work.done == ["seal"]
    assert epoch.step is Step.SEALED
    assert lab.pipeline.await_published(1) is epoch
    assert work.done == ["seal", "upload", "publish", "retire"]
    assert set(epoch.spent_ms) == {"seal", "upload", "publish"}
    assert lab.moments == [
        Moment.SEALING,
        Moment.SEALED,
        Moment.UPLOADING,
        Moment.UPLOADED,
        Moment.PUBLISHING,
        Moment.PUBLISHED,
        Moment.RETIRED,
    ]


def test_another_version_is_not_waited_for(lab: Lab) -> None:
    lab.pipeline.start(Recorded(version=1))
    lab.pipeline.await_sealed(None)
    assert lab.pipeline.await_published(7) is None


def test_a_failed_seal_is_done_again_from_the_log(lab: Lab) -> None:
    work = Recorded(seal=[TryAgain("disk full")])
    lab.pipeline.start(work)
    lab.pipeline.await_published(1)
    assert work.done[:2] == ["seal", "seal again"]


def test_an_epoch_of_a_log_begins_sealed(lab: Lab) -> None:
    work = Recorded()
    lab.pipeline.start(work, sealed=True)
    lab.pipeline.await_published(1)
    assert work.done == ["upload", "publish", "retire"]


def test_after_the_limit_the_next_caller_is_told_why_and_only_that_one(lab: Lab) -> None:
    lab.pipeline.start(Recorded(upload=[TryAgain("no route") for _ in range(9)]))
    lab.pipeline.await_sealed(1)
    with pytest.raises(TryAgain, match="no route") as error:
        lab.pipeline.await_published(1)
    assert "local log" in error.value.hint
    assert lab.pipeline.epoch is None
    lab.pipeline.await_published(1)


@pytest.mark.parametrize("error", [StateMissing("parent gone"), Fenced("newer")])
def test_what_does_not_get_better_is_not_tried_again(lab: Lab, error: HeadraceError) -> None:
    work = Recorded(publish=[error])
    lab.pipeline.start(work)
    with pytest.raises(TryAgain, match=error.message):
        lab.pipeline.await_published(1)
    assert work.done.count("publish") == 1


def test_a_dropped_epoch_does_nothing_more_and_its_waiters_are_told(lab: Lab) -> None:
    work = Recorded()
    epoch = lab.pipeline.start(work)
    lab.pipeline.drop()
    with pytest.raises(Fenced):
        epoch.sealed.result()
    lab.jobs.drain()
    assert work.done in ([], ["seal"])


class Stuck(Recorded):
    """Its first upload never says a word; it is looked at from inside, because here is only one thread."""

    def __init__(self, lab: Lab, silent_ms: float) -> None:
        super().__init__()
        self._lab, self._silent_ms = lab, silent_ms

    def upload(self, progressed: Callable[[int], None]) -> None:
        super().upload(progressed)
        if self.done.count("upload") == 1:
            self._lab.clock.sleep_ms(self._silent_ms)
            self._lab.pipeline.look()


@pytest.mark.parametrize(
    ("silent_ms", "away", "nbytes", "uploads"),
    [
        (STALLED_MS - 1, False, 0, 1),
        (STALLED_MS + 1, False, 0, 2),
        (STALLED_MS + 1, True, 0, 1),
        (STALLED_MS + 59_999, False, 60 << 20, 1),
        (STALLED_MS + 60_001, False, 60 << 20, 2),
    ],
)
def test_a_step_that_stands_still_is_done_again_unless_storage_is_away(
    lab: Lab, silent_ms: float, away: bool, nbytes: int, uploads: int
) -> None:
    """A large file has the time that slow storage needs for its size."""
    work, lab.away = Stuck(lab, silent_ms), away
    work.nbytes = nbytes
    lab.pipeline.start(work)
    lab.pipeline.await_published(1)
    lab.jobs.drain()
    assert work.done.count("upload") == uploads
    assert work.done.count("retire") == 1, "the thread that came back late has no say"


def test_limits_are_plain_decisions() -> None:
    limits: Any = Limits(redos=2, stalled_ms=10)
    assert limits.after_error(TryAgain("x"), 1) is Verdict.REDO
    assert limits.after_error(TryAgain("x"), 2) is Verdict.FAIL
    assert limits.after_silence(9, 0) is Verdict.WAIT
    assert limits.after_silence(10, 0) is Verdict.REDO
    assert limits.after_silence(10, 2) is Verdict.FAIL
