"""`hr.AsyncProcessor`: the base of processors whose calls wait for state or for other systems."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.errors import QueryError

if TYPE_CHECKING:
    from headrace.spark.processors.requests import Talk
    from headrace.spark.processors.run import BatchTimes, ProcessorPlan, WorkerTask


class AsyncProcessor(StatefulProcessor):  # type: ignore[misc]
    """A processor whose calls may wait, for ``hr.stream(…).groupBy(…).transformWithState``.

    ``init(handle)`` declares state as in PySpark's ``StatefulProcessor``. Every call of a state variable or
    of a timer is awaited. While one key waits, other keys go on. The rows of one key are processed one
    after the other, in their order. A batch is committed after all of its calls are complete.

    Attributes
    ----------
    max_in_flight : int
        How many rows are incomplete at a time.
    max_active : int
        How many state requests are sent to the host together.
    stalled_s : float
        The batch fails if no row completes for this long.

    Examples
    --------
    >>> import headrace as hr
    >>> class Totals(hr.AsyncProcessor):
    ...     def init(self, handle):
    ...         self.total = handle.getValueState("total", "amount long")
    ...
    ...     async def process(self, key, row, out):
    ...         before = await self.total.get()
    ...         total = row.amount + (before[0] if before else 0)
    ...         await self.total.update((total,))
    ...         out.emit(Row(user=key[0], total=total))
    """

    max_in_flight: ClassVar[int] = 6_000
    max_active: ClassVar[int] = 1_000
    stalled_s: ClassVar[float] = 300.0

    @abstractmethod
    def init(self, handle: Any) -> None:
        """Declares state variables: ``handle.getValueState``, ``getListState``, ``getMapState``."""

    @abstractmethod
    async def process(self, key: Any, row: Any, out: Any) -> None:
        """Processes one row of a key; ``out.emit(Row(…))`` adds a row to the output."""

    async def onTimer(self, key: Any, time_ms: int, out: Any) -> None:
        """A timer of a key is due; all rows of the batch were processed before."""

    async def connect(self) -> None:
        """Opens connections to other systems; runs in every task, before its first row."""

    async def disconnect(self) -> None:
        """Closes them; runs after the last row and timer of a task, also if it fails."""

    def close(self) -> None:
        """Ends a task, after `disconnect`."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """PySpark's own engine calls this; it cannot run an asynchronous processor."""
        raise QueryError(
            f"{type(self).__name__} is an hr.AsyncProcessor, which only Headrace runs",
            hint="wrap the stream: hr.stream(df).groupBy(…).transformWithState(…)",
        )

    def headrace_task(self, plan: ProcessorPlan, talk: Talk, times: BatchTimes) -> WorkerTask:
        """The task that runs this processor; `ProcessorPlan.task` looks for this method."""
        from headrace.spark.asynchronous.task import AsyncTask

        return AsyncTask(plan, talk, times)
