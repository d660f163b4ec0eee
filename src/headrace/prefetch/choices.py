"""The lookahead of each operator, chosen once per batch from what the batches before measured.

Threads: any; one lock guards all choices.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.plan.lookahead import Candidates, PrefetchSettings
from headrace.plan.spec import OperatorSpec
from headrace.prefetch.controller import Choice, after, begin
from headrace.wire.state_reads import StateReads


@dataclass
class _Account:
    run: str
    candidates: Candidates  # of the newest batch
    choice: Choice
    batch: int = -1  # the newest one that the choice has seen


class Lookaheads:
    """The choices of a driver's operators; a new start of a query begins anew."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._lock = threading.Lock()

    def choose(
        self,
        query: str,
        run: str,
        spec: OperatorSpec,
        settings: PrefetchSettings,
        candidates: Candidates,
        batches: Iterable[tuple[int, StateReads]],
        *,
        batch: int,
    ) -> Choice:
        """The lookahead of a batch, from the batches before it."""
        key = (query, spec.name)
        with self._lock:
            account = self._accounts.get(key)
            if account is None or account.run != run:
                account = self._accounts[key] = _Account(run, candidates, begin(candidates, settings.mode))
            account.candidates = candidates
            for number, reads in batches:
                if account.batch < number < batch:
                    account.batch = number
                    account.choice = after(account.choice, reads, candidates, settings.mode, settings.waste)
            return account.choice

    def choice(self, query: str, operator: str) -> Choice | None:
        """The newest choice of an operator; None before its first batch."""
        with self._lock:
            account = self._accounts.get((query, operator))
            return None if account is None else account.choice

    def newest(self, operator: str) -> tuple[Candidates, Choice] | None:
        """Candidates and choice of the operator of that name whose query began last."""
        with self._lock:
            mine = [account for (_, name), account in self._accounts.items() if name == operator]
            return (mine[-1].candidates, mine[-1].choice) if mine else None

    def drop(self, queries: Collection[str]) -> None:
        """Forgets queries that have ended."""
        with self._lock:
            self._accounts = {key: one for key, one in self._accounts.items() if key[0] not in queries}
