"""Run numbers: each start of a query takes the next one, and a larger fences a smaller.

A run is the blob `<query>/runs/<number>`, put if absent, that names the start (Spark's run id). All hosts
that work for one start share its run. Threads: any; storage decides races.
"""

from __future__ import annotations

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.clock import Clock, SystemClock
from headrace.errors import Fenced
from headrace.format.names import parse_run, run_record, runs_folder
from headrace.format.record import corrupt, decode_record, encode_record

FORMAT_VERSION = 1
REMEMBERED = 64  # starts: the record of an older one goes, so that scheduled queries do not pile them up
_KIND = "run"


def claim_run(
    blobs: Blobs, query: str, start: str, *, clock: Clock | None = None, retry: Retry | None = None
) -> int:
    """The number of a start of `query`; a start that a newer one has overtaken raises `Fenced`."""
    clock, retry = clock or SystemClock(), retry or Retry()
    mine = encode_record(_KIND, FORMAT_VERSION, {"start": start})
    newest = newest_run(blobs, query)
    for number in range(newest, max(0, newest - REMEMBERED), -1):
        if start_of(blobs, query, number) == start:
            ensure_current(blobs, query, number)
            return number
    while True:  # each turn either ends or meets a run that another start claimed meanwhile
        newest += 1
        held = put_or_read(blobs, run_record(query, newest), mine, clock=clock, retry=retry)
        if held == mine:
            if newest > REMEMBERED:
                blobs.delete(run_record(query, newest - REMEMBERED))
            return newest


def newest_run(blobs: Blobs, query: str) -> int:
    """The largest run number claimed so far; 0 when there is none."""
    return max(filter(None, map(parse_run, blobs.list(runs_folder(query)))), default=0)


def ensure_current(blobs: Blobs, query: str, run: int) -> None:
    """Raise `Fenced` when a newer run has taken the query."""
    newest = newest_run(blobs, query)
    if newest > run:
        raise Fenced(
            f"run {run} of query {query} was taken over by run {newest} "
            f"(start {start_of(blobs, query, newest)})",
            hint="nothing to do if the newer start is meant; otherwise stop it, then start this again",
        )


def start_of(blobs: Blobs, query: str, run: int) -> str:
    """Which start claimed a run."""
    name = run_record(query, run)
    where = f"{blobs.root}/{name}"
    start = decode_record(_KIND, FORMAT_VERSION, blobs.get(name), where).get("start")
    if not isinstance(start, str):
        raise corrupt(_KIND, where, "it names no start")
    return start
