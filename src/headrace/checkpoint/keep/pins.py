"""Pins: immutable records by which something outside of a query's versions names files of the query.

    <query>/<operator>/pins/<owner>      manifests, by whole names; each stands for all its segments too

A savepoint pins the manifests of its version. A branch pins those that it begins from, and releases them
once none of its retained versions names a segment of another query.
Threads: any, on any number of machines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.checkpoint.restore import read_manifest
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import BlobMissing
from headrace.format.names import blob_name, component, home_of
from headrace.format.record import corrupt, decode_record, encode_record

FORMAT_VERSION = 1
ORIGIN = "layouts/branch"  # in the folder of a branch's operator: the manifests that it begins from
_KIND = "pin"


def pin_name(prefix: str, owner: str) -> str:
    """The pin of an owner in an operator's folder."""
    return f"{prefix}/pins/{component(owner)}"


def put_pin(blobs: Blobs, prefix: str, owner: str, manifests: Sequence[str]) -> None:
    """Pins manifests and all that they name; the same pin may be put again."""
    data = encode_record(_KIND, FORMAT_VERSION, {"manifests": list(manifests)})
    put_or_read(blobs, pin_name(prefix, owner), data, clock=SYSTEM_CLOCK, retry=Retry())


def pinned_files(blobs: Blobs, prefix: str) -> set[str]:
    """The whole names of all files that the pins of an operator name."""
    names: set[str] = set()
    for pin in blobs.list(f"{prefix}/pins/"):
        for name in _manifests(blobs, pin):
            names |= {name, *_segments(blobs, name)}
    return names


def release_branch(blobs: Blobs, prefix: str, names: Collection[str], needed: Collection[str]) -> None:
    """Removes a branch's pin on its original once its versions name only segments of its own."""
    origin = f"{prefix}/{ORIGIN}"
    if origin not in names or any(not name.startswith(f"{prefix}/") for name in needed):
        return
    from headrace.checkpoint.rescale.frozen import read_frozen  # imports this storey's restore only

    for original in {home_of(home_of(parent.manifest)) for parent in read_frozen(blobs, origin)}:
        blobs.delete(pin_name(original, prefix))
    blobs.delete(origin)


def _segments(blobs: Blobs, manifest: str) -> list[str]:
    try:
        segments = read_manifest(blobs, manifest).segments
    except BlobMissing:  # a pin that came too late, and is about to be removed
        return []
    return [blob_name(home_of(manifest), segment.name) for segment in segments]


def _manifests(blobs: Blobs, pin: str) -> list[str]:
    try:
        body = decode_record(_KIND, FORMAT_VERSION, blobs.get(pin), f"{blobs.root}/{pin}")
    except BlobMissing:  # it was released meanwhile
        return []
    manifests = body.get("manifests")
    if not isinstance(manifests, list):
        raise corrupt(_KIND, f"{blobs.root}/{pin}", "it names no manifests")
    return [str(name) for name in manifests]
