"""What the coordinator reads from Spark."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from headrace.checkpoint.records import SmallFiles
from headrace.coordinator.belonging import Places


class QueryView(Places, Protocol):
    """What the coordinator reads from Spark."""

    def active_run(self, query: str) -> str | None:
        """Spark's run id of a running query."""

    def active_queries(self) -> set[str] | None:
        """Ids of all running queries; None when Spark does not answer."""

    def checkpoint_files(self, query: str) -> SmallFiles:
        """The query's checkpoint directory."""

    def started_fresh(self, query: str) -> bool:
        """Whether the running query began with batch 0."""

    def seen_ms(self, query: str, batch: int, operator: str, nodes: list[str]) -> list[int | None]:
        """The largest event time that reached an operator in the batch, per watermark node; else None."""

    def watermark_ms(self, query: str, batch: int, operator: str) -> int | None:
        """The watermark of an operator in the JVM, whose tasks of the batch have ended."""

    def operators_before(self, query: str, batch: int) -> set[str]:
        """The operators in the plan of the batch before the running one, as far as Spark has the plan."""

    def first_with_input(self, query: str, operator: str, batches: Sequence[int]) -> int | None:
        """The first of these batches that brought a source of the operator something new."""

    def start_hosts(self) -> Future[None]:
        """Starts the state hosts of all executors' machines that have none; over when they run."""

    def alive(self) -> bool:
        """Whether the Spark application still runs."""
