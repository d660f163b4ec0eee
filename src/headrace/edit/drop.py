"""Dropping a query's state: what savepoints and branches name stays until they need it no more."""

from __future__ import annotations

import uuid

from headrace.blob.base import Blobs
from headrace.checkpoint.beside.lease import LeaseWatch, read_lease
from headrace.checkpoint.keep.dropped import drop_query
from headrace.checkpoint.runs import claim_run
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import QueryError
from headrace.format.names import component, dropped_record, runs_folder
from headrace.inspect.state import State
from headrace.plan.times import TIMES


def drop(checkpoint: str, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Deletes the state of a stopped query; returns whether nothing of it is left."""
    with State(checkpoint) as state:
        watch = LeaseWatch(state.checkpoint.files)
        if read_lease(state.checkpoint.files) is not None:
            clock.sleep_ms(TIMES.lease_s * 1000)
        watch.refuse_live()
        locations = sorted({record.location for record in state.checkpoint.records().values()})
        done = [drop_at(state.open_location(one, create=False), state.query) for one in locations]
    return all(done)


def drop_at(blobs: Blobs, query: str) -> bool:
    """Deletes the state of a query by its id; a run that is claimed first fences hosts that are left."""
    names = blobs.list(f"{component(query)}/")
    if not names:
        raise QueryError(
            f"no query {query} has state in {blobs.root}",
            hint="name its checkpoint, or the state location and its id: <state location>#<query>",
        )
    if dropped_record(query) not in names and blobs.list(runs_folder(query)):
        claim_run(blobs, query, f"drop {uuid.uuid4().hex}")
    return drop_query(blobs, query)
