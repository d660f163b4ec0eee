"""The driver's monitor: samples the application once a second for views, metrics and histories.

Invariants: nothing that goes wrong here stops a query; it is logged once. The last sample is taken when the
application ends, so that a history has every batch.
Threads: one of its own, with its own connection to the JVM, so that no task waits behind a sample.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from headrace.clock import SystemClock
from headrace.coordinator.core import Coordinator
from headrace.errors import HeadraceError
from headrace.host.process.settings import safe
from headrace.monitor import records
from headrace.monitor.door import Door
from headrace.monitor.history import FOLDER, HistoryWriter, LocalHistory, RewrittenHistory, next_file
from headrace.monitor.journal import Journal
from headrace.monitor.metrics.prometheus import MetricsServer
from headrace.monitor.sampler import Ended, Running, Sampler
from headrace.plan.options import Options, local_on
from headrace.spark.driver.checkpoint_files import HadoopFiles
from headrace.spark.task.machine import machine_name

log = logging.getLogger("headrace.monitor")

PERIOD_S = 1.0
PROGRESS_MAX = 20  # batches of a query between two samples


class Queries:
    """Spark's queries, as the sampler reads them (`SparkQueries`)."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark.sparkContext._jvm
        self._session = spark._jsparkSession
        self._executions: dict[str, Any] = {}  # of queries that ran at the last look

    def active_queries(self) -> set[str] | None:
        try:
            ids = str(self._map().keySet().toString())
        except (Py4JError, OSError, RuntimeError):  # the JVM is gone
            return None
        return set(ids.strip("[]").split(", "))

    def describe(self, query: str, since: int) -> Running | None:
        try:
            execution = self._map().get(self._jvm.java.util.UUID.fromString(query))
            if execution is None:
                return None
            self._executions[query] = execution
            name, run = execution.name() or "", str(execution.runId().toString())
            return Running(run, str(name), _progress(execution, since))
        except (Py4JError, OSError, RuntimeError):
            return None

    def ended(self, query: str, since: int) -> Ended:
        execution = self._executions.pop(query, None)
        try:
            if execution is None:
                return Ended()
            failure = execution.exception()
            error = str(failure.get().toString()) if failure.isDefined() else ""
            return Ended(error, _progress(execution, since))
        except (Py4JError, OSError, RuntimeError):
            return Ended()

    def _map(self) -> Any:
        return self._session.sharedState().activeStreamingQueries()


def _progress(execution: Any, since: int) -> tuple[str, ...]:
    """Spark's progress after a batch, oldest first; at most what a second can bring."""
    recent = execution.recentProgress()
    newest_first: list[str] = []
    for at in range(len(recent) - 1, max(-1, len(recent) - 1 - PROGRESS_MAX), -1):
        if int(recent[at].batchId()) <= since:
            break
        newest_first.append(str(recent[at].json()))
    return tuple(reversed(newest_first))


class Gone:
    """Spark's queries once Spark has ended."""

    def active_queries(self) -> set[str] | None:
        return set()

    def describe(self, query: str, since: int) -> Running | None:
        return None

    def ended(self, query: str, since: int) -> Ended:
        return Ended()


class Monitor:
    """Samples from its start until `close`."""

    def __init__(self, spark: Any, coordinator: Coordinator, options: Options) -> None:
        context = spark.sparkContext
        self.journal = Journal()
        self._context = context
        self._bytes_max = 0
        self._clock = SystemClock()
        self._sampler = Sampler(coordinator, Queries(spark), self.journal, self._history, self._clock)
        self._sampling = threading.Lock()
        self._ended = threading.Event()
        self._metrics: MetricsServer | None = None
        name, identity = str(context.appName), str(context.applicationId)
        self.journal.add(records.application(self._clock.now_ms(), identity, name))
        local = Path(local_on(options.local, machine_name("machine")))
        self._door = _door(local / safe(identity), identity, name, self.journal)
        self.configure(options)
        threading.Thread(target=self._run, name="headrace-monitor", daemon=True).start()

    @property
    def metrics_port(self) -> int | None:
        """Where metrics are served; None where they are not."""
        return None if self._metrics is None else self._metrics.port

    def configure(self, options: Options) -> None:
        """Go by these options from now on; metrics that are served already stay where they are."""
        self._bytes_max = options.history_bytes
        if options.metrics_port is not None and self._metrics is None:
            self._metrics = MetricsServer(options.metrics_port, self.journal)

    def sample(self) -> None:
        """Look now; harmless at any time."""
        with self._sampling:
            self._sampler.sample()
        if self._metrics is not None:
            self._metrics.follow()

    def close(self) -> None:
        """Take the last sample, without Spark, and stop."""
        self._ended.set()
        with self._sampling:
            self._sampler.finish(Gone())
        if self._door is not None:
            self._door.close()
        if self._metrics is not None:
            self._metrics.close()

    def _run(self) -> None:
        failed = False
        while not self._ended.wait(PERIOD_S):
            try:
                self.sample()
                failed = False
            except Exception:  # the monitor goes on with the next second
                if not failed:
                    log.exception("a sample failed")
                failed = True

    def _history(self, checkpoint: str) -> HistoryWriter | None:
        if not self._bytes_max:
            return None
        if checkpoint.startswith("file:"):
            folder = Path("/" + checkpoint.removeprefix("file:").lstrip("/")) / FOLDER
            return HistoryWriter(LocalHistory(folder), self._bytes_max, next_file(folder))
        hadoop = HadoopFiles(checkpoint, self._context._gateway, self._context._jsc.hadoopConfiguration())
        return HistoryWriter(RewrittenHistory(hadoop), self._bytes_max)


def _door(folder: Path, application: str, name: str, journal: Journal) -> Door | None:
    """The way in for `headrace top` and `headrace view`; without one they only lack this application."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.lstat().st_uid != os.getuid():
            raise HeadraceError(f"{folder} belongs to another user")
        return Door(folder, application, name, journal)
    except (OSError, HeadraceError) as error:
        log.warning("headrace top and headrace view cannot reach this application: %s", error)
        return None
