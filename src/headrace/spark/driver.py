"""The coordinator's life in the driver, and what it reads from Spark's JVM.

One coordinator per SparkContext, kept on the context object. It ends with the application, however that
ends: a watcher sees the context stopped or the JVM gone, tells the hosts to leave and closes the server;
if this process dies instead, the hosts see the server gone.
Threads: the JVM is asked from one thread of its own, since every Python thread that speaks to it opens a
connection and gRPC's threads come and go; the watcher is another.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError

from headrace.coordinator.core import Coordinator, HeardHost
from headrace.coordinator.progress import BatchProgress
from headrace.coordinator.records import SmallFiles
from headrace.coordinator.server import CoordinatorServer
from headrace.errors import Fenced, HeadraceError
from headrace.host.locks import remove_socket
from headrace.host.secret import new_secret
from headrace.host.wire import call, connect
from headrace.spark.checkpoint_files import HadoopFiles, LocalFiles
from headrace.spark.event_times import EventTimes

log = logging.getLogger("headrace.coordinator")

_KEPT_AS = "_headrace_coordinator"
_WATCH_S = 0.5
_KEYS_MAX = 64
T = TypeVar("T")


class SparkView:
    """What the coordinator asks of Spark (`QueryView`)."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        self._session = spark._jsparkSession
        self._active: Any = None
        self._keys: dict[str, Any] = {}  # ids of queries as the JVM has them
        self._event_times = EventTimes()
        self._jvm_thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-jvm")
        self.ended = threading.Event()

    def alive(self) -> bool:
        return not self.ended.is_set()

    def close(self) -> None:
        self._jvm_thread.shutdown(wait=False, cancel_futures=True)

    def active_run(self, query: str) -> str | None:
        def ask() -> str | None:
            execution = self._execution(query)
            return None if execution is None else str(execution.runId().toString())

        return self._ask(ask)

    def active_queries(self) -> set[str] | None:
        try:
            ids: str = self._ask(lambda: self._active_map().keySet().toString())
        except (Py4JError, OSError, RuntimeError):  # the JVM is gone; the watcher will see it too
            return None
        return set(ids.strip("[]").split(", "))

    def checkpoint_files(self, query: str) -> SmallFiles:
        root: str = self._ask(lambda: self._running(query).resolvedCheckpointRoot())
        if root.startswith("file:"):
            return LocalFiles(root)
        context = self._context
        hadoop = self._ask(lambda: HadoopFiles(root, context._gateway, context._jsc.hadoopConfiguration()))
        return OneThreadFiles(hadoop, self._ask)

    def started_fresh(self, query: str) -> bool:
        def ask() -> bool:
            progress = self._running(query).recentProgress()
            return len(progress) > 0 and progress[0].batchId() == 0

        return self._ask(ask)

    def seen_ms(self, query: str, batch: int, nodes: list[str]) -> list[int | None]:
        def ask() -> list[int | None]:
            execution = self._running(query).lastExecution()
            if execution.currentBatchId() != batch:
                raise Fenced(f"batch {batch} of query {query} is over")
            return self._event_times.seen_ms(execution.executedPlan(), nodes)

        return self._ask(ask)

    def _execution(self, query: str) -> Any:
        """Spark's execution of a running query of any session; None when it does not run."""
        if query not in self._keys:
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            self._keys[query] = self._context._jvm.java.util.UUID.fromString(query)
        return self._active_map().get(self._keys[query])

    def _active_map(self) -> Any:
        """Spark's running queries of all sessions, by id. It is one object for the application's life."""
        if self._active is None:
            self._active = self._session.sharedState().activeStreamingQueries()
        return self._active

    def _running(self, query: str) -> Any:
        execution = self._execution(query)
        if execution is None:
            raise Fenced(f"query {query} is not running")
        return execution

    def _ask(self, question: Callable[[], T]) -> T:
        return self._jvm_thread.submit(question).result()


class OneThreadFiles:
    """Small files whose every call goes through the JVM's thread."""

    def __init__(self, files: SmallFiles, ask: Callable[[Callable[[], Any]], Any]) -> None:
        self.root = files.root
        self._files = files
        self._ask = ask

    def read(self, name: str) -> str | None:
        text: str | None = self._ask(lambda: self._files.read(name))
        return text

    def write(self, name: str, text: str) -> None:
        self._ask(lambda: self._files.write(name, text))


class RunningCoordinator:
    """A SparkContext's coordinator and where to reach it."""

    def __init__(self, spark: Any) -> None:
        context = spark.sparkContext
        self.application: str = context.applicationId
        self.local_master: bool = is_local(context.master)
        self.secret = new_secret()
        self._context = context
        self._view = SparkView(spark)
        self._coordinator = Coordinator(self._view)
        bind, advertised = _where(context, self.local_master)
        self._server = CoordinatorServer(self._coordinator, bind, self.secret)
        self.address = f"grpc+tcp://{advertised}:{self._server.port}"
        self._closed = threading.Lock()
        threading.Thread(target=self._watch, name="headrace-watch", daemon=True).start()
        atexit.register(self.close)

    def progress(self, query: str, operator: str) -> list[BatchProgress]:
        """The last batches of an operator in the query's current run, oldest first."""
        return self._coordinator.progress(query, operator)

    def operators(self, query: str) -> list[str]:
        return self._coordinator.operators(query)

    def hosts(self) -> dict[str, HeardHost]:
        """The live hosts by machine, each with its newest status."""
        return self._coordinator.hosts()

    def storage_waits_s(self) -> dict[str, float]:
        """For how long hosts have been waiting for storage, by location."""
        return self._coordinator.storage_waits_s()

    def close(self) -> None:
        """Send the hosts away and stop serving; harmless when repeated."""
        if not self._closed.acquire(blocking=False):
            return
        atexit.unregister(self.close)
        self._view.ended.set()
        for host in self._coordinator.end():
            _send_away(host, self.secret)
        self._server.shutdown()
        self._view.close()

    def _watch(self) -> None:
        while not self._view.ended.wait(_WATCH_S):
            if not runs(self._context):
                log.info("the Spark application has ended")
                self.close()


def coordinator_for(spark: Any) -> RunningCoordinator:
    """The coordinator of the session's application; started at the first call."""
    context = spark.sparkContext
    with context._lock:
        running: RunningCoordinator | None = getattr(context, _KEPT_AS, None)
        if running is None:
            running = RunningCoordinator(spark)
            setattr(context, _KEPT_AS, running)
        return running


def runs(context: Any) -> bool:
    """Whether a SparkContext is alive: not stopped, and its JVM still there."""
    try:
        if context._jsc is None:
            return False
        process = getattr(context._gateway, "proc", None)
        if process is not None and process.poll() is not None:
            return False
        return not context._jsc.sc().isStopped()
    except Exception:  # py4j raises several kinds when the JVM is gone, and it must never keep a host alive
        return False


def is_local(master: str) -> bool:
    """Whether all tasks run in the driver's own JVM."""
    return master == "local" or master.startswith("local[")


def _where(context: Any, local_master: bool) -> tuple[str, str]:
    """Where to bind, and what others are told."""
    if local_master or context.master.startswith("local-cluster"):
        return "127.0.0.1", "127.0.0.1"
    host = context.getConf().get("spark.driver.host")
    return context.getConf().get("spark.driver.bindAddress", host), host


def _send_away(host: HeardHost, secret: str) -> None:
    unix = host.addresses.get("unix", "")
    path = Path(unix.removeprefix("grpc+unix://"))
    here = bool(unix) and path.exists()
    address = unix if here else host.addresses.get("tcp")
    if not address:
        return
    client = connect(address)
    try:
        call(client, secret, "stop", {}, timeout_s=2)
    except HeadraceError:
        if here:  # it was killed and cannot remove its socket itself
            remove_socket(path)
    finally:
        client.close()
