"""The leases of the queries that run in this driver.

Invariants: a start takes the lease before its first batch is answered. A start that reads another start's
lease has lost the query for good, and begins no batch any more. A lease is released when its query has
ended and no host has a version of it to publish. A lease's file is read and written in the turn of its
query, so that no beat of an earlier start meets the first lease of a later one.
Threads: `take` and `check` from any, `renew` and `close` from one. `_lock` is not held while files are
read or written; a query's turn is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from headrace.checkpoint.beside.lease import NAME, Lease, read_lease
from headrace.checkpoint.records import SmallFiles
from headrace.errors import Fenced

log = logging.getLogger("headrace.coordinator")


@dataclass(frozen=True)
class Tenure:
    """A lease of this driver, with the checkpoint that it is in."""

    lease: Lease
    files: SmallFiles


class Leases:
    """All leases of one driver; `is_over` is whether a query needs its lease no more."""

    def __init__(self, holder: str, is_over: Callable[[str], bool]) -> None:
        self._holder, self._is_over = holder, is_over
        self._lock = threading.Lock()
        self._tenures: dict[str, Tenure] = {}
        self._lost: dict[str, Lease] = {}  # by run: the lease that took its place
        self._turns: dict[str, threading.Lock] = {}

    def take(self, query: str, run: str, files: SmallFiles) -> None:
        """Takes the lease for a start; the operators of a query share it."""
        with self._turn(query):
            with self._lock:
                tenure = self._tenures.get(query)
                if tenure is not None and tenure.lease.run == run:
                    return
                tenure = self._tenures[query] = Tenure(Lease(run, self._holder), files)
            files.write(NAME, tenure.lease.to_text())

    def check(self, run: str) -> None:
        """Raises `Fenced` when another start has taken the query from this one."""
        with self._lock:
            other = self._lost.get(run)
        if other is not None:
            raise Fenced(
                f"the query was started again: {other.holder}",
                hint="nothing to do if that start is meant; otherwise stop it, then start this again",
            )

    def renew(self) -> None:
        """Renews every lease that is still this driver's; releases those of ended queries."""
        with self._lock:
            queries = list(self._tenures)
        for query in queries:
            try:
                with self._turn(query):
                    self._renew(query)
            except Exception:  # of any file system; the next beat tries again
                log.warning("the lease of query %s was not renewed", query, exc_info=True)

    def _turn(self, query: str) -> threading.Lock:
        with self._lock:
            return self._turns.setdefault(query, threading.Lock())

    def _renew(self, query: str) -> None:
        with self._lock:
            tenure = self._tenures.get(query)
        if tenure is None:
            return
        current = read_lease(tenure.files)
        if current is not None and current.run != tenure.lease.run:
            self._drop(query, tenure, current)
        elif self._is_over(query):
            self._drop(query, tenure)
            tenure.files.remove(NAME)
        else:
            renewed = Tenure(tenure.lease.renewed(), tenure.files)
            tenure.files.write(NAME, renewed.lease.to_text())
            with self._lock:
                if self._tenures.get(query) is tenure:
                    self._tenures[query] = renewed

    def _drop(self, query: str, tenure: Tenure, other: Lease | None = None) -> None:
        with self._lock:
            if self._tenures.get(query) is tenure:
                del self._tenures[query]
            if other is not None:
                self._lost[tenure.lease.run] = other

    def release(self, query: str) -> None:
        """Releases the lease of a query that runs here no more, whatever its hosts have yet to publish."""
        with self._turn(query):
            with self._lock:
                tenure = self._tenures.pop(query, None)
            if tenure is not None:
                _remove(tenure)

    def close(self) -> None:
        """Releases all leases that are still this driver's."""
        with self._lock:
            queries = list(self._tenures)
        for query in queries:
            self.release(query)


def _remove(tenure: Tenure) -> None:
    """Removes the file of a lease, unless another start has taken it."""
    try:
        current = read_lease(tenure.files)
        if current is not None and current.run == tenure.lease.run:
            tenure.files.remove(NAME)
    except Exception:  # the JVM that reaches the checkpoint may be gone; the lease runs out
        log.info("the lease of %s runs out by itself", tenure.files.root)
