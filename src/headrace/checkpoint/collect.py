"""Garbage collection: deletes files that no retained version and no running attempt needs.

Pure functions over names and manifests decide which files go. Two rules make them safe against attempts
that run at the same time, here or on another machine: nothing above the committed version is touched, and a
segment carries the version of the first manifest that names it, so that an old one which no manifest names
is never named again. Manifests go before segments: a crash in between leaves files, never a version with
holes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass

from headrace.blob.base import Blobs
from headrace.checkpoint.restore import read_manifest
from headrace.errors import BlobMissing
from headrace.format.manifest import Manifest
from headrace.format.names import parse_manifest, parse_segment


def oldest_retained(parent_of: Callable[[int], int | None], committed: int, retain: int) -> int:
    """The last of `retain` versions on the way from `committed` to its ancestors.

    Following parents, not numbers, leaves out versions that an attempt published and Spark never committed.
    `parent_of` gives None for a version without a parent, or whose parent is no longer there.
    """
    if retain < 1:
        raise ValueError(f"at least one version is retained, not {retain}")
    oldest = committed
    for _ in range(retain - 1):
        parent = parent_of(oldest)
        if parent is None:
            break
        oldest = parent
    return oldest


def collectable(
    names: Iterable[str], retained: Iterable[Manifest], oldest: int, keep: Collection[str] = ()
) -> list[str]:
    """The names to delete, in the order of deletion.

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
    """Deletes files that the newest `retain` versions up to `committed` do not need; returns their names.

    `committed` is a version that Spark has committed: the base of the running batch, not the batch itself,
    which Spark may still replay from its base. `known` is the caller's cache of manifests read before.
    """
    names = blobs.list(f"{prefix}/")
    newest = {attempt.version: name for name in names if (attempt := parse_manifest(name))}
    start = max((version for version in newest if version <= committed), default=None)
    if start is None:
        return []
    manifests = _Manifests(blobs, {} if known is None else known)
    try:
        oldest = oldest_retained(lambda version: manifests.parent(newest, version), start, retain)
        retained = manifests.only([n for n in names if (a := parse_manifest(n)) and a.version >= oldest])
    except BlobMissing:
        return []  # another collector is ahead of this one; the next call goes on
    doomed = collectable(names, retained, oldest, keep)
    for name in doomed:
        blobs.delete(name)
    blobs.sweep(f"{prefix}/")
    return doomed


@dataclass(frozen=True)
class _Manifests:
    """Manifests on storage, read at most once each."""

    blobs: Blobs
    known: MutableMapping[str, Manifest]

    def read(self, name: str) -> Manifest:
        if name not in self.known:
            self.known[name] = read_manifest(self.blobs, name)
        return self.known[name]

    def parent(self, newest: Mapping[int, str], version: int) -> int | None:
        """The version before `version`, if `newest`, the truth of each version, still has it."""
        parent = self.read(newest[version]).parent_version
        return parent if parent in newest else None

    def only(self, names: Collection[str]) -> list[Manifest]:
        """The manifests of those names; drops all others from the cache."""
        for stale in set(self.known).difference(names):
            del self.known[stale]
        return [self.read(name) for name in names]


def _file(name: str) -> str:
    return name.rpartition("/")[2]
