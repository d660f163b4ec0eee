"""Dropped queries: all their files go, except those that a pin names; these go with the pin.

`<query>/runs/dropped` is put first and removed last. From then on no start of the query claims a run, and
whoever releases a pin on the query finishes the work.
Threads: any, on any number of machines.
"""

from __future__ import annotations

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.checkpoint.keep.condemned import condemn, finish_condemned
from headrace.checkpoint.keep.hold import release
from headrace.checkpoint.keep.pins import pinned_files
from headrace.checkpoint.rescale.frozen import read_origins
from headrace.clock import SYSTEM_CLOCK
from headrace.format.names import component, dropped_record, query_of, runs_folder
from headrace.format.record import encode_record

ORIGIN = "layouts/branch"  # in the folder of a branch's operator: the manifests that it begins from
FORMAT_VERSION = 1
_KIND = "dropped"


def drop_query(blobs: Blobs, query: str) -> bool:
    """Deletes the state of a query that does not run; returns whether all of it is gone."""
    data = encode_record(_KIND, FORMAT_VERSION, {"query": query})
    put_or_read(blobs, dropped_record(query), data, clock=SYSTEM_CLOCK, retry=Retry())
    return finish_dropped(blobs, query)


def finish_dropped(blobs: Blobs, query: str) -> bool:
    """Deletes what no pin names, if the query was dropped; returns whether nothing is left."""
    if not blobs.list(dropped_record(query)):
        return False
    names = blobs.list(f"{component(query)}/")
    runs = [name for name in names if name.startswith(runs_folder(query))]
    folders = {"/".join(name.split("/")[:2]) for name in set(names).difference(runs)}
    for prefix in sorted(folders):
        _finish_operator(blobs, prefix)
    blobs.sweep(f"{component(query)}/")
    if any(not name.startswith(runs_folder(query)) for name in blobs.list(f"{component(query)}/")):
        return False
    for name in sorted(runs, key=lambda name: name == dropped_record(query)):
        blobs.delete(name)
    return True


def release_origins(blobs: Blobs, prefix: str) -> None:
    """Removes the pins of a branch's operator, and finishes the originals that were dropped before it."""
    origin = f"{prefix}/{ORIGIN}"
    origins = read_origins(blobs, origin)
    release(blobs, prefix, origins)
    for query in sorted({query_of(folder) for folder in origins}):
        finish_dropped(blobs, query)
    blobs.delete(origin)


def _finish_operator(blobs: Blobs, prefix: str) -> None:
    names = blobs.list(f"{prefix}/")
    if finish_condemned(blobs, prefix, names):
        names = blobs.list(f"{prefix}/")
    if f"{prefix}/{ORIGIN}" in names:
        release_origins(blobs, prefix)
    before = pinned_files(blobs, prefix, names)
    kept = (f"{prefix}/pins/", f"{prefix}/condemned/")
    doomed = [name for name in names if name not in before and not name.startswith(kept)]
    if not doomed:
        return
    with condemn(blobs, prefix, doomed) as listed:
        pinned = pinned_files(blobs, prefix)
        for name in doomed:
            if name not in pinned:
                blobs.delete(name)
        listed.is_done = True
