"""The coordinator's life in the driver, and its reads from Spark's JVM.

A SparkContext has one coordinator, stored on the context object. The coordinator ends with the application.
A watcher thread notices a stopped context or a dead JVM, stops the hosts and closes the server. If the
driver's process dies, the hosts notice that the server is unreachable.
Threads: one thread makes all calls to the JVM, because every Python thread that calls it opens a connection
of its own. The watcher is a second thread, and a third one renews the leases of running queries.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
from collections import ChainMap
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.records import SmallFiles
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.coordinator.belonging import Places
from headrace.coordinator.core import Coordinator
from headrace.coordinator.door import open_door
from headrace.coordinator.drain import Drain, not_published
from headrace.coordinator.placing.machines import HostReport
from headrace.coordinator.placing.pins import PartitionKey
from headrace.coordinator.progress import BatchProgress
from headrace.coordinator.server import CoordinatorServer
from headrace.errors import Fenced
from headrace.host.process.settings import HostSettings
from headrace.plan.lookahead import Candidates
from headrace.plan.options import HostPer, Options, default_local, local_on
from headrace.plan.times import TIMES
from headrace.prefetch.controller import Choice
from headrace.spark.driver.batches import first_with_input, operators_before
from headrace.spark.driver.checkpoint_files import HadoopFiles
from headrace.spark.driver.event_times import EventTimes, operator_watermark_ms
from headrace.spark.driver.everywhere import on_every_executor, start_host_here
from headrace.spark.driver.host_calls import status_of, stop_host
from headrace.spark.driver.monitor import Monitor
from headrace.spark.task.machine import machine_name
from headrace.wire.secret import new_secret

log = logging.getLogger("headrace.coordinator")

_KEPT_AS = "_headrace_coordinator"
_KEYS_MAX = 64
T = TypeVar("T")


class SparkView:
    """Spark's side of the coordinator (`QueryView`)."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        self._session = spark._jsparkSession
        self._active: Any = None
        self._keys: dict[str, Any] = {}  # ids of queries as JVM objects
        self._local = _local(spark)
        self._host: tuple[HostSettings, HostPer] | None = None
        self._event_times = EventTimes()
        self._jvm_thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-jvm")
        self.ended = threading.Event()

    def alive(self) -> bool:
        return not self.ended.is_set()

    def close(self) -> None:
        self._jvm_thread.shutdown(wait=False, cancel_futures=True)

    def active_run(self, query: str) -> str | None:
        def read() -> str | None:
            execution = self._execution(query)
            return None if execution is None else str(execution.runId().toString())

        return self._on_jvm_thread(read)

    def active_queries(self) -> set[str] | None:
        try:
            ids: str = self._on_jvm_thread(lambda: self._active_map().keySet().toString())
        except (Py4JError, OSError, RuntimeError):  # the JVM is dead; the watcher notices it too
            return None
        return set(ids.strip("[]").split(", "))

    def blobs_at(self, location: str, *, create: bool) -> Blobs:
        environment = ChainMap(self._context.environment, os.environ)  # as tasks have it, who start hosts
        return Locations(Path(self._local), environment=environment).open(location, create=create)

    def checkpoint_files(self, query: str) -> SmallFiles:
        return self.files_at(
            self._on_jvm_thread(lambda: str(self._running(query).resolvedCheckpointRoot()))
        )

    def files_at(self, root: str) -> SmallFiles:
        if root.startswith("file:"):
            return LocalFiles(root)
        context = self._context
        hadoop = self._on_jvm_thread(
            lambda: HadoopFiles(root, context._gateway, context._jsc.hadoopConfiguration())
        )
        return OneThreadFiles(hadoop, self._on_jvm_thread)

    def started_fresh(self, query: str) -> bool:
        def read() -> bool:
            progress = self._running(query).recentProgress()
            return len(progress) > 0 and progress[0].batchId() == 0

        return self._on_jvm_thread(read)

    def seen_ms(self, query: str, batch: int, operator: str, nodes: list[str]) -> list[int | None]:
        def read() -> list[int | None]:
            execution = self._running(query).lastExecution()
            if execution.currentBatchId() != batch:
                raise Fenced(f"batch {batch} of query {query} is over")
            return self._event_times.seen_ms(execution.executedPlan(), operator, nodes)

        return self._on_jvm_thread(read)

    def watermark_ms(self, query: str, batch: int, operator: str) -> int | None:
        def read() -> int | None:
            execution = self._running(query).lastExecution()
            if execution.currentBatchId() != batch:
                raise Fenced(f"batch {batch} of query {query} is over")
            return operator_watermark_ms(execution.executedPlan(), operator)

        return self._on_jvm_thread(read)

    def operators_before(self, query: str, batch: int) -> set[str]:
        return self._on_jvm_thread(lambda: operators_before(self._running(query), batch))

    def serve_with(self, settings: HostSettings, per: HostPer) -> None:
        """Notes the settings by which tasks start hosts, so that the driver can have them started too."""
        self._host = (settings, per)

    def start_hosts(self) -> Future[None]:
        done: Future[None] = Future()
        threading.Thread(target=self._start_hosts, args=(done,), name="headrace-hosts", daemon=True).start()
        return done

    def _start_hosts(self, done: Future[None]) -> None:
        try:
            if self._host is not None:
                on_every_executor(self._context, partial(start_host_here, *self._host))
            done.set_result(None)
        except Exception as error:  # the caller decides by the hosts that there are
            done.set_exception(error)

    def first_with_input(self, query: str, operator: str, batches: Sequence[int]) -> int | None:
        return self._on_jvm_thread(lambda: first_with_input(self._running(query), operator, batches))

    def _execution(self, query: str) -> Any:
        """Spark's execution of a running query of any Spark session; None when it does not run."""
        if query not in self._keys:
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            self._keys[query] = self._context._jvm.java.util.UUID.fromString(query)
        return self._active_map().get(self._keys[query])

    def _active_map(self) -> Any:
        """Spark's map of all running queries by id; the same object during the whole application."""
        if self._active is None:
            self._active = self._session.sharedState().activeStreamingQueries()
        return self._active

    def _running(self, query: str) -> Any:
        execution = self._execution(query)
        if execution is None:
            raise Fenced(f"query {query} is not running")
        return execution

    def _on_jvm_thread(self, run: Callable[[], T]) -> T:
        return self._jvm_thread.submit(run).result()


class OneThreadFiles:
    """Small files; the JVM's thread makes every call."""

    def __init__(self, files: SmallFiles, on_jvm_thread: Callable[[Callable[[], Any]], Any]) -> None:
        self.root = files.root
        self._files = files
        self._on_jvm_thread = on_jvm_thread

    def read(self, name: str) -> str | None:
        text: str | None = self._on_jvm_thread(lambda: self._files.read(name))
        return text

    def list(self, folder: str) -> list[str]:
        names: list[str] = self._on_jvm_thread(lambda: self._files.list(folder))
        return names

    def write(self, name: str, text: str) -> None:
        self._on_jvm_thread(lambda: self._files.write(name, text))

    def put(self, name: str, text: str) -> bool:
        return bool(self._on_jvm_thread(lambda: self._files.put(name, text)))

    def remove(self, name: str) -> None:
        self._on_jvm_thread(lambda: self._files.remove(name))


class RunningCoordinator:
    """A SparkContext's coordinator and its address."""

    def __init__(self, spark: Any, clock: Clock = SYSTEM_CLOCK) -> None:
        context = spark.sparkContext
        self.application: str = context.applicationId
        self.local_master: bool = is_local(context.master)
        self.secret = new_secret()
        self._context = context
        self._spark = spark
        self._clock = clock
        self._view = SparkView(spark)
        holder = f"application {self.application}, pid {os.getpid()} on {socket.gethostname()}"
        self._coordinator = Coordinator(self._view, clock, holder)
        bind, advertised = _addresses(context, self.local_master)
        self._server = CoordinatorServer(self._coordinator, bind, self.secret)
        self.address = f"grpc+tcp://{advertised}:{self._server.port}"
        self._door = open_door(self._coordinator, bind, self.secret)
        self.door = f"{advertised}:{self._door.port}"
        self._monitor: Monitor | None = None
        self._stop_wait_s = 0.0  # as the newest operator has it
        self._closed = threading.Lock()
        for name, run in (("headrace-watch", self._watch), ("headrace-lease", self._renew)):
            threading.Thread(target=run, name=name, daemon=True).start()
        self._end_before(context)
        atexit.register(self.end)

    def progress(self, query: str, operator: str) -> list[BatchProgress]:
        """The last batches of an operator in the query's current start, oldest first."""
        return self._coordinator.progress(query, operator)

    def verdict(self, operator: str, uid: str) -> str:
        """What the observer of an operator's store chose in its last batch."""
        return self._coordinator.verdict(operator, uid)

    def lookahead(self, operator: str) -> tuple[Candidates, Choice] | None:
        """Candidates and choice of an operator in its newest batch."""
        return self._coordinator.lookahead(operator)

    def operators(self, query: str) -> list[str]:
        return self._coordinator.operators(query)

    def monitor(self, options: Options) -> Monitor:
        """The application's monitor; started at the first call."""
        if self._monitor is None:
            self._monitor = Monitor(self._spark, self._coordinator, options)
        self._monitor.configure(options)
        self._stop_wait_s = float(options.stop_wait_s)
        return self._monitor

    def flush_history(self) -> None:
        """Write what queries have done by now to their histories."""
        if self._monitor is not None:
            self._monitor.sample()

    def release_lease(self, query: str) -> None:
        """A query that has ended here is about to start again: its own lease must not stop it."""
        self._coordinator.leases.release(query)

    def serve_with(self, settings: HostSettings, per: HostPer) -> None:
        """Notes how tasks of the application start hosts."""
        self._view.serve_with(settings, per)

    @property
    def places(self) -> Places:
        """Where state and checkpoints are."""
        return self._view

    def hosts(self) -> dict[str, HostReport]:
        """The live hosts by machine, each with its newest status."""
        return self._coordinator.hosts()

    def storage_waits_s(self) -> dict[str, float]:
        """How long hosts have been waiting for storage, by location."""
        return self._coordinator.storage_waits_s()

    def drain(self, within_s: float, queries: Collection[str] | None = None) -> list[PartitionKey]:
        """Waits until storage has what is in local logs; returns the partitions that it lacks then."""

        def statuses() -> list[dict[str, Any]]:
            return [status_of(host, self.secret) for host in self._coordinator.hosts().values()]

        return Drain(self._coordinator.pins, statuses, self._clock).wait(within_s, queries)

    def end(self) -> None:
        """Waits for commits under way, and stops the hosts. Executors must still be alive."""
        if not self._view.ended.is_set():
            left = self.drain(self._stop_wait_s)
            if left:
                log.warning("%s", not_published(left, self._stop_wait_s))
        self.close()

    def close(self) -> None:
        """Stops the hosts and the server. Repeated calls do nothing."""
        if not self._closed.acquire(blocking=False):
            return
        atexit.unregister(self.end)
        self._view.ended.set()
        if self._monitor is not None:
            self._monitor.close()
        for host in self._coordinator.end():
            stop_host(host, self.secret)
        self._door.close()
        self._server.shutdown()
        self._coordinator.leases.close()
        self._view.close()

    def _end_before(self, context: Any) -> None:
        """Ends the hosts before Spark ends the executors: on many clusters nothing survives these."""
        stop = context.stop

        def end_and_stop() -> None:
            self.end()
            stop()

        context.stop = end_and_stop

    def _renew(self) -> None:
        while not self._clock.wait(self._view.ended, TIMES.lease_renew_s * 1000):
            self._coordinator.leases.renew()

    def _watch(self) -> None:
        while not self._clock.wait(self._view.ended, TIMES.driver_watch_s * 1000):
            if not runs(self._context):
                log.info("the Spark application has ended")
                self.close()


def coordinator_for(spark: Any) -> RunningCoordinator:
    """The coordinator of the application; the first call starts it."""
    context = spark.sparkContext
    with context._lock:
        running: RunningCoordinator | None = getattr(context, _KEPT_AS, None)
        if running is None:
            running = RunningCoordinator(spark)
            setattr(context, _KEPT_AS, running)
        return running


def runs(context: Any) -> bool:
    """Whether a SparkContext is alive: not stopped, and its JVM is running."""
    try:
        if context._jsc is None:
            return False
        process = getattr(context._gateway, "proc", None)
        if process is not None and process.poll() is not None:
            return False
        return not context._jsc.sc().isStopped()
    except Exception:  # py4j raises several kinds for a dead JVM, and a host must end in all of these cases
        return False


def _local(spark: Any) -> str:
    """The directory for local copies of blobs, as the Spark session has it now."""
    local = str(spark.conf.get("spark.headrace.state.local", None) or default_local())
    return local_on(local, machine_name("machine"))


def is_local(master: str) -> bool:
    """Whether all tasks run in the driver's own JVM."""
    return master == "local" or master.startswith("local[")


def _addresses(context: Any, local_master: bool) -> tuple[str, str]:
    """The address to bind, and the address for others."""
    if local_master or context.master.startswith("local-cluster"):
        return "127.0.0.1", "127.0.0.1"
    host = context.getConf().get("spark.driver.host")
    return context.getConf().get("spark.driver.bindAddress", host), host
