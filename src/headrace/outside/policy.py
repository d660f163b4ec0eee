"""What a look-up does while its store is down: wait for it, go on with nulls, or fail.

Threads: the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar, get_args

from headrace.clock import Clock
from headrace.errors import QueryError
from headrace.outside.errors import StoreDown
from headrace.plan.times import TIMES

Down = Literal["wait", "null", "fail"]
Result = TypeVar("Result")

log = logging.getLogger("headrace.outside")


def checked(down: str) -> Down:
    """The policy of a name."""
    for policy in get_args(Down):
        if policy == down:
            chosen: Down = policy
            return chosen
    raise QueryError(f"down={down!r}", hint='write "wait", "null" or "fail"')


def pause_s(failures: int) -> float:
    """The wait after some failures in a row."""
    return min(TIMES.lookup_pause_s, 0.05 * 2.0 ** min(failures - 1, 30))


async def waiting(attempt: Callable[[], Awaitable[Result]], clock: Clock) -> Result:
    """Repeats an attempt until the store answers; raises its error after the patience is over."""
    began_ms, failures, reported_ms = clock.monotonic_ms(), 0, 0.0
    while True:
        try:
            return await attempt()
        except StoreDown as error:
            failures += 1
            waited_ms = clock.monotonic_ms() - began_ms
            if waited_ms > TIMES.storage_patience_s * 1000:
                raise
            if failures == 1 or waited_ms - reported_ms > TIMES.storage_report_s * 1000:
                reported_ms = waited_ms
                log.warning("%s; waiting for it since %.0f s", error.message, waited_ms / 1000)
        await asyncio.sleep(pause_s(failures))


class Breaker:
    """After a failure, requests are not even tried for a short time, so that nulls cost no waiting."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._until_ms = clock, float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether requests are skipped."""
        return self._clock.monotonic_ms() < self._until_ms

    def trip(self) -> None:
        self._until_ms = self._clock.monotonic_ms() + TIMES.lookup_skip_s * 1000
