"""Run numbers: each application that runs a query takes the next one, and a larger fences a smaller.

A run is the blob `<query>/runs/<number>`, put if absent, that names its application. All hosts of one
application share its run. Threads: any; storage decides races.
"""

from __future__ import annotations

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.clock import Clock, SystemClock
from headrace.errors import Fenced
from headrace.format.names import parse_run, run_record, runs_folder
from headrace.format.record import corrupt, decode_record, encode_record

FORMAT_VERSION = 1
_KIND = "run"


def claim_run(
    blobs: Blobs, query: str, application: str, *, clock: Clock | None = None, retry: Retry | None = None
) -> int:
    """The number under which `application` runs `query`: the newest if that is its own, else a new one."""
    clock, retry = clock or SystemClock(), retry or Retry()
    mine = encode_record(_KIND, FORMAT_VERSION, {"application": application})
    newest = newest_run(blobs, query)
    if newest and application_of(blobs, query, newest) == application:
        return newest
    while True:  # each turn either ends or meets a run that another application claimed meanwhile
        newest += 1
        held = put_or_read(blobs, run_record(query, newest), mine, clock=clock, retry=retry)
        if held == mine:
            return newest


def newest_run(blobs: Blobs, query: str) -> int:
    """The largest run number claimed so far; 0 when there is none."""
    return max(filter(None, map(parse_run, blobs.list(runs_folder(query)))), default=0)


def ensure_current(blobs: Blobs, query: str, run: int) -> None:
    """Raise `Fenced` when a newer run has taken the query."""
    newest = newest_run(blobs, query)
    if newest > run:
        raise Fenced(
            f"run {run} of query {query} was taken over by run {newest} of application "
            f"{application_of(blobs, query, newest)}",
            hint="nothing to do if the newer application is meant to run; otherwise stop it and start this "
            "query again",
        )


def application_of(blobs: Blobs, query: str, run: int) -> str:
    """Who claimed a run."""
    name = run_record(query, run)
    where = f"{blobs.root}/{name}"
    application = decode_record(_KIND, FORMAT_VERSION, blobs.get(name), where).get("application")
    if not isinstance(application, str):
        raise corrupt(_KIND, where, "it names no application")
    return application
