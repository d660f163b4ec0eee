"""Checks that the version in memory is still the one that counts, while the next batch runs on it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from headrace.errors import TryAgain
from headrace.format.manifest import Manifest
from headrace.format.names import Attempt
from headrace.host.state.stored import Stored, overtakes
from headrace.wire.contract import Ticket


@dataclass(frozen=True)
class BaseCheck:
    """A request to shared storage: which attempt wrote the base."""

    answer: Future[Stored]
    expected: Attempt
    vouched: bool  # the coordinator has no newer attempt: the next batch may look at the answer

    def check(self, wait: Callable[[Future[Any]], Any]) -> None:
        """Waits for the answer; raises when a newer attempt has written the base again."""
        newest: Stored = wait(self.answer)
        if isinstance(newest, Attempt) and overtakes(newest, self.expected):
            raise TryAgain(
                f"version {newest.version} was written again by run {newest.run}, attempt "
                f"{newest.attempt}, while this host had it in memory",
                hint="nothing to do: the next attempt reads that one",
            )


def is_vouched(base: Manifest, ticket: Ticket, run: int) -> bool:
    """Whether the coordinator has no newer attempt at the base; only another driver can have one."""
    return (base.run, base.attempt) == (run, ticket.base_attempt)
