"""A crew of one thread: jobs run on request or while a caller waits, in a seeded order.

Invariant: the same seed and the same calls give the same order. A job that raises `Crash` ends the
simulated process: the crew runs no more jobs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.steps import Limits, Probe
from headrace.clock import Clock


class Crash(BaseException):
    """The simulated process ended here; nothing may catch this."""


@dataclass
class Job:
    future: Future[Any]
    call: Callable[[], Any]


class SteppedJobs:
    """The jobs that are ready to run."""

    def __init__(self, randomness: random.Random) -> None:
        self._randomness = randomness
        self._waiting: list[Job] = []

    def add(self, call: Callable[[], Any]) -> Future[Any]:
        job = Job(Future(), call)
        self._waiting.append(job)
        return job.future

    def add_job(self, call: Callable[[], None]) -> None:
        self.add(call)

    def step(self) -> bool:
        """Runs one job; returns False when no job is left."""
        if not self._waiting:
            return False
        job = self._waiting.pop(self._randomness.randrange(len(self._waiting)))
        try:
            job.future.set_result(job.call())
        except Exception as error:
            job.future.set_exception(error)
        return True

    def drain(self) -> None:
        while self.step():
            pass

    def wait(self, future: Future[Any]) -> Any:
        while not future.done():
            if not self.step():
                raise AssertionError("somebody waits for what nobody does")
        return future.result()


class SteppedExecutor(Executor):
    """Adds calls to the jobs."""

    def __init__(self, jobs: SteppedJobs) -> None:
        self._jobs = jobs

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._jobs.add(lambda: fn(*args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._jobs.drain()


def stepped_crew(jobs: SteppedJobs, clock: Clock, probe: Probe) -> Crew:
    """A crew that runs every job through `jobs`."""
    return Crew(
        sealers=SteppedExecutor(jobs),
        uploads=SteppedExecutor(jobs),
        wait=jobs.wait,
        rescue=jobs.add_job,
        clock=clock,
        limits=Limits(redos=2),
        probe=probe,
        watched=False,
    )
