"""Garbage collection: deletes what no retained version needs, and nothing that a running attempt may need.

What goes is decided by pure functions over names and manifests. Two rules make them safe against attempts
that run at the same time, here or on another machine: nothing above the committed version is touched, and a
segment carries the version of the first manifest that names it, so that an old one which no manifest names
is never named again. Manifests go before segments: a crash in between leaves files, never a version with
holes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping

from headrace.blob.base import Blobs
from headrace.checkpoint.restore import read_manifest
from headrace.errors import BlobMissing
from headrace.format.manifest import Manifest
from headrace.format.names import parse_manifest, parse_segment


def oldest_retained(names: Iterable[str], committed: int, retain: int) -> int | None:
    """The oldest of the newest `retain` versions at or below `committed`; None when there is none.

    All attempts at a version count as one.
    """
    if retain < 1:
        raise ValueError(f"at least one version is retained, not {retain}")
    parsed = map(parse_manifest, names)
    found = sorted({attempt.version for attempt in parsed if attempt and attempt.version <= committed})
    return found[-retain:][0] if found else None


def collectable(
    names: Iterable[str], retained: Iterable[Manifest], oldest: int, keep: Collection[str] = ()
) -> list[str]:
    """The names that may go, in the order in which they may go.

    `names` lie under one partition; `retained` are all manifests from version `oldest` on. A segment whose
    file name is in `keep` stays.
    """
    needed = {_file(segment.name) for manifest in retained for segment in manifest.segments}
    needed.update(map(_file, keep))
    manifests, segments = [], []
    for name in sorted(names):
        attempt, segment = parse_manifest(name), parse_segment(name)
        if attempt is not None and attempt.version < oldest:
            manifests.append(name)
        elif segment is not None and segment.attempt.version < oldest and _file(name) not in needed:
            segments.append(name)
    return manifests + segments


def collect(
    blobs: Blobs,
    prefix: str,
    committed: int,
    retain: int,
    *,
    keep: Collection[str] = (),
    known: MutableMapping[str, Manifest] | None = None,
) -> list[str]:
    """Delete what the newest `retain` versions up to `committed` do not need; returns what was deleted.

    `committed` is a version that Spark has committed: the base of the running batch, not the batch itself,
    which Spark may still replay from its base. `known` is the caller's cache of manifests read before.
    """
    names = blobs.list(f"{prefix}/")
    oldest = oldest_retained(names, committed, retain)
    if oldest is None:
        return []
    cache: MutableMapping[str, Manifest] = {} if known is None else known
    retained = _retained_names(names, oldest)
    try:
        for name in retained:
            if name not in cache:
                cache[name] = read_manifest(blobs, name)
    except BlobMissing:
        return []  # another collector is ahead of this one; the next call sees what it left
    for stale in set(cache).difference(retained):
        del cache[stale]
    doomed = collectable(names, cache.values(), oldest, keep)
    for name in doomed:
        blobs.delete(name)
    blobs.sweep(f"{prefix}/")
    return doomed


def _retained_names(names: Iterable[str], oldest: int) -> list[str]:
    return [name for name in names if (attempt := parse_manifest(name)) and attempt.version >= oldest]


def _file(name: str) -> str:
    return name.rpartition("/")[2]
