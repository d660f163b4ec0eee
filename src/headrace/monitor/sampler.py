"""Turns the coordinator's accounts into records, once a second, in the driver. No batch waits for it.

Invariants: a batch is recorded when all its partitions have committed, and again when its hidden part is
known; a query's facts are recorded before its batches.
Threads: one, its owner's; the coordinator locks for itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from headrace.clock import Clock
from headrace.coordinator.core import Coordinator
from headrace.coordinator.progress import BatchProgress
from headrace.coordinator.requests import OperatorAccount
from headrace.monitor import records
from headrace.monitor.failures import failure
from headrace.monitor.history import HistoryWriter
from headrace.monitor.hosts import HostWatch
from headrace.monitor.journal import Journal
from headrace.monitor.records import Record

log = logging.getLogger("headrace.monitor")

AMENDED = 3  # so many batches back a record may still change


@dataclass(frozen=True)
class Running:
    """A running query, as Spark describes it."""

    run: str
    name: str
    progress: tuple[str, ...] = ()  # JSON of Spark's progress since the requested batch, oldest first


@dataclass(frozen=True)
class Ended:
    """A query that has ended; `error` is empty when it was stopped."""

    error: str = ""
    progress: tuple[str, ...] = ()


class SparkQueries(Protocol):
    """What the sampler reads from Spark."""

    def active_queries(self) -> set[str] | None:
        """Ids of all running queries; None when Spark does not answer."""

    def describe(self, query: str, since: int) -> Running | None:
        """A running query, and its progress after batch `since`; None when it does not run."""

    def ended(self, query: str, since: int) -> Ended:
        """How a query that was described before has ended, and its progress after batch `since`."""


@dataclass
class _Seen:
    """What was recorded of a query."""

    run: str = ""
    name: str = ""
    trigger: int = -1
    ended: bool = False
    operators: dict[str, dict[int, BatchProgress]] = field(default_factory=dict)
    history: HistoryWriter | None = None


class Sampler:
    """Writes a journal and the histories of queries."""

    def __init__(
        self,
        coordinator: Coordinator,
        spark: SparkQueries,
        journal: Journal,
        history: Callable[[str], HistoryWriter | None],
        clock: Clock,
    ) -> None:
        self._coordinator, self._spark, self._journal = coordinator, spark, journal
        self._open_history = history
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._hosts = HostWatch()

    def sample(self) -> list[Record]:
        """Record what is new; returns it."""
        now_ms = self._clock.now_ms()
        events = self._hosts.look(now_ms, self._coordinator.hosts())
        active = self._spark.active_queries()
        added = list(events)
        for query in self._coordinator.queries():
            seen = self._seen.setdefault(query, _Seen())
            mine = self._query(now_ms, query, seen, active is None or query in active)
            added += mine
            self._write(seen, mine + [e for e in events if e["kind"] == "event"], now_ms)
        for record in added:
            self._journal.add(record)
        return added

    def finish(self, spark: SparkQueries) -> list[Record]:
        """Record what is left when Spark has ended; `spark` stands in for it."""
        self._spark = spark
        return self.sample()

    def _query(self, now_ms: int, query: str, seen: _Seen, runs: bool) -> list[Record]:
        if seen.ended and not runs:
            return []
        running = self._spark.describe(query, seen.trigger) if runs else None
        added: list[Record] = []
        for name in self._coordinator.operators(query):
            known = seen.operators.get(name, {})
            account = self._coordinator.account(query, name, max(known, default=-1) - AMENDED)
            if account is not None:
                added += self._operator(now_ms, query, seen, running, account)
        if running is not None:
            added += self._triggers(now_ms, query, seen, running.progress)
        if seen.run and running is None and runs is False:
            added += self._ended(now_ms, query, seen)
        return added

    def _operator(
        self, now_ms: int, query: str, seen: _Seen, running: Running | None, account: OperatorAccount
    ) -> list[Record]:
        added: list[Record] = []
        if account.run != seen.run:
            name = seen.name = running.name if running else seen.name
            seen.run, seen.ended, seen.operators = account.run, False, {}
            seen.history = seen.history or self._open_history(account.checkpoint)
            added.append(records.query(now_ms, query, account.run, name, account.checkpoint))
        operator = account.spec.name
        if operator not in seen.operators:
            added.append(records.operator(now_ms, query, account))
        known = seen.operators.setdefault(operator, {})
        for progress in account.batches:
            if progress.partitions == account.spec.partitions and known.get(progress.batch) != progress:
                known[progress.batch] = progress
                added.append(records.batch(now_ms, query, operator, progress))
        for old in sorted(known)[: -2 * AMENDED]:
            del known[old]
        return added

    def _triggers(self, now_ms: int, query: str, seen: _Seen, progress: tuple[str, ...]) -> list[Record]:
        if not seen.run:
            return []
        made = [json.loads(text) for text in progress]
        seen.trigger = max((int(one["batchId"]) for one in made), default=seen.trigger)
        return [records.trigger(now_ms, query, one) for one in made if one.get("numInputRows")]

    def _ended(self, now_ms: int, query: str, seen: _Seen) -> list[Record]:
        last, seen.ended = self._spark.ended(query, seen.trigger), True
        added = self._triggers(now_ms, query, seen, last.progress)
        if last.error:
            message, hint = failure(last.error)
            added.append(records.event(now_ms, seen.name or query[:8], "error", message, hint))
        return [*added, records.ended(now_ms, query, last.error)]

    def _write(self, seen: _Seen, added: list[Record], now_ms: int) -> None:
        if seen.history is None:
            return
        try:
            seen.history.write(added, now_ms)
        except FileNotFoundError:  # Spark removes a checkpoint that it made for itself
            seen.history = None
        except Exception as error:  # whatever the file system raises; a history never stops a query
            log.warning("no history any more: %s", error)
            seen.history = None
