"""Run numbers: each start of a query takes the next one, and a larger fences a smaller.

A run is the blob `<query>/runs/<number>`, put if absent, that names the start (Spark's run id). All hosts
that work for one start share its run. Threads: any; storage decides races.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.clock import Clock, SystemClock
from headrace.errors import Fenced, StateMissing
from headrace.format.manifest import Manifest
from headrace.format.names import dropped_record, parse_run, run_record, runs_folder
from headrace.format.record import corrupt, decode_record, encode_record

FORMAT_VERSION = 1
REMEMBERED = 64  # starts: the record of an older one goes, so that scheduled queries do not pile them up
_KIND = "run"


def claim_run(
    blobs: Blobs,
    query: str,
    start: str,
    *,
    has_state: bool = False,
    clock: Clock | None = None,
    retry: Retry | None = None,
) -> int:
    """The number of a start of `query`; a start that a newer one has overtaken raises `Fenced`.

    A query that `has_state` has runs: without them its numbers would begin again, below those of its state.
    """
    clock, retry = clock or SystemClock(), retry or Retry()
    names = blobs.list(runs_folder(query))
    if dropped_record(query) in names:
        raise _lost(blobs, query, "its state was dropped")
    newest = _newest(names)
    if has_state and newest == 0:
        raise _lost(blobs, query, "it has state, and no run is there")
    starts = _starts(blobs, query, newest)
    if start in starts:
        number = newest - starts.index(start)
        ensure_current(blobs, query, number)
        return number
    while True:  # each turn either ends or meets a run that another start claimed meanwhile
        newest += 1
        mine = encode_record(_KIND, FORMAT_VERSION, {"start": start, "before": starts})
        name = run_record(query, newest)
        stored = put_or_read(blobs, name, mine, clock=clock, retry=retry)
        claimed_by = _start(stored, f"{blobs.root}/{name}")
        if claimed_by == start:
            if newest > REMEMBERED:
                blobs.delete(run_record(query, newest - REMEMBERED))
            return newest
        starts = [claimed_by, *starts][: REMEMBERED - 1]


def _starts(blobs: Blobs, query: str, newest: int) -> list[str]:
    """The starts of the runs from `newest` down. A record names those before it, so one read is enough.

    Records of earlier releases name their own start only.
    """
    starts: list[str] = []
    for number in range(newest, max(0, newest - REMEMBERED + 1), -1):
        name = run_record(query, number)
        data, where = blobs.get(name), f"{blobs.root}/{name}"
        starts.append(_start(data, where))
        before = decode_record(_KIND, FORMAT_VERSION, data, where).get("before")
        if isinstance(before, list):
            return [*starts, *map(str, before)][: REMEMBERED - 1]
    return starts


def newest_run(blobs: Blobs, query: str) -> int:
    """The largest run number claimed so far; 0 when there is none."""
    return _newest(blobs.list(runs_folder(query)))


def begin_runs(blobs: Blobs, query: str, number: int, start: str) -> None:
    """Records a run of a new query that goes on from versions of runs up to `number`."""
    data = encode_record(_KIND, FORMAT_VERSION, {"start": start, "before": []})
    put_or_read(blobs, run_record(query, number), data, clock=SystemClock(), retry=Retry())


def _newest(names: Sequence[str]) -> int:
    return max(filter(None, map(parse_run, names)), default=0)


def ensure_current(blobs: Blobs, query: str, run: int) -> None:
    """Raises `Fenced` if a newer run has taken the query, `StateMissing` if the run's record is lost."""
    newest = newest_run(blobs, query)
    if newest < run:
        raise _lost(blobs, query, f"run {run} is not there")
    if newest > run:
        raise Fenced(
            f"run {run} of query {query} was taken over by run {newest} "
            f"(start {start_of(blobs, query, newest)})",
            hint="nothing to do if the newer start is meant; otherwise stop it, then start this again",
        )


def refuse_later(blobs: Blobs, query: str, manifest: Manifest | None, run: int) -> None:
    """Raises if `run` would start from state of a later run, which its own versions could not follow."""
    if manifest is not None and manifest.run > run:
        ensure_current(blobs, query, run)
        raise _lost(blobs, query, f"run {manifest.run} wrote version {manifest.version}, and is not there")


def _lost(blobs: Blobs, query: str, problem: str) -> StateMissing:
    return StateMissing(
        f"{blobs.root}/{runs_folder(query)} has lost its runs: {problem}",
        hint="bring that folder back from a backup of the same moment as the state, or start again with a "
        "new checkpoint location",
    )


def start_of(blobs: Blobs, query: str, run: int) -> str:
    """Which start claimed a run."""
    name = run_record(query, run)
    return _start(blobs.get(name), f"{blobs.root}/{name}")


def _start(data: bytes, where: str) -> str:
    start = decode_record(_KIND, FORMAT_VERSION, data, where).get("start")
    if not isinstance(start, str):
        raise corrupt(_KIND, where, "it names no start")
    return start
