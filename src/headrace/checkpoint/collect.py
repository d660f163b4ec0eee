"""Garbage collection: deletes the files of an operator that nothing names any more.

One collector marks and sweeps all partitions of all layouts, since partitions may name each other's
segments. Pure functions over names and manifests decide which files go. Two rules make them safe against
attempts that run at the same time, here or on another machine. Nothing above the committed version is
touched. And a segment carries the version of the first manifest that names it, or as the output of a
compaction a later one (`format.names.LEASE`). An old segment that no manifest names is never named again,
except by a pin (`checkpoint/keep/pins.py`). The same is true of an output that has been named: once it is
replaced, it goes with the last version that names it, however long its lease. A collection lists what it
condemns, looks at the pins once more, and then deletes. Manifests go before segments: a crash in between
leaves files, never a version with holes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from headrace.blob.base import Blobs
from headrace.checkpoint.keep.branch import release_branch
from headrace.checkpoint.keep.condemned import condemn, finish_condemned
from headrace.checkpoint.keep.pins import pinned_files
from headrace.checkpoint.restore import read_manifest
from headrace.checkpoint.steps import Moment, Probe, unobserved
from headrace.errors import BlobMissing, RestoreState
from headrace.format.manifest import Manifest
from headrace.format.names import (
    Attempt,
    blob_name,
    home_of,
    parse_frozen,
    parse_manifest,
    parse_segment,
)


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


def needed_by(manifests: Mapping[str, Manifest]) -> set[str]:
    """The whole names of all segments that manifests name; the manifests are given by their names."""
    return {
        blob_name(home_of(name), segment.name)
        for name, manifest in manifests.items()
        for segment in manifest.segments
    }


def collectable(
    names: Iterable[str], needed: Collection[str], oldest: int, replaced: Collection[str] = ()
) -> list[str]:
    """The names to delete, in the order of deletion; `needed` are whole names.

    Nothing of version `oldest` or a later one goes, except segments that are `replaced`: older manifests
    name them.
    """
    manifests, segments, frozen = [], [], []
    for name in sorted(names):
        attempt, segment, version = parse_manifest(name), parse_segment(name), parse_frozen(name)
        if name in needed:
            continue
        if attempt is not None and attempt.version < oldest:
            manifests.append(name)
        elif segment is not None and (segment.attempt.version < oldest or name in replaced):
            segments.append(name)
        elif version is not None and version < oldest:
            frozen.append(name)
    return manifests + segments + frozen


def collect(
    blobs: Blobs,
    prefix: str,
    committed: int,
    retain: int,
    *,
    folders: Sequence[str] | None = None,
    known: MutableMapping[str, Manifest] | None = None,
    probe: Probe = unobserved,
) -> list[str]:
    """Deletes files that the newest `retain` versions up to `committed` do not need; returns their names.

    `prefix` is an operator's folder, and `folders` those of its partitions now. `committed` is a version
    that Spark has committed: the base of the running batch, not the batch itself, which Spark may still
    replay from its base. `known` is the caller's cache of manifests read before.
    """
    names = blobs.list(f"{prefix}/")
    if finish_condemned(blobs, prefix, names):
        names = blobs.list(f"{prefix}/")
    manifests = _Manifests(blobs, {} if known is None else known)
    try:
        before = pinned_files(blobs, prefix, names)
        doomed = doomed_files(manifests, names, committed, retain, folders or [prefix], before)
        if not doomed:
            return []
        release_branch(blobs, prefix, names, needed_by(manifests.known))
        with condemn(blobs, prefix, doomed) as listed:
            probe(Moment.CONDEMNED)
            pinned = pinned_files(blobs, prefix)
            unpinned = [name for name in doomed if name not in pinned]
            for name in unpinned:
                probe(Moment.SWEEPING)
                blobs.delete(name)
            probe(Moment.SWEPT)
            listed.is_done = True
    except BlobMissing:
        return []  # another collector is ahead of this one; the next call goes on
    blobs.sweep(f"{prefix}/")
    return unpinned


def doomed_files(
    manifests: _Manifests,
    names: Sequence[str],
    committed: int,
    retain: int,
    folders: Sequence[str],
    pinned: Collection[str],
) -> list[str]:
    """The files that nothing needs, in the order of deletion."""
    newest = newest_by_version(names)
    start = committed_everywhere(names, committed, folders)
    if start is None:
        return []
    oldest = oldest_retained(lambda version: manifests.parent(newest, version), start, retain)
    versions = {name: attempt.version for name in names if (attempt := parse_manifest(name))}
    replaced = manifests.named_by([n for n, at in versions.items() if at < oldest and n not in pinned])
    retained = manifests.only([name for name, version in versions.items() if version >= oldest])
    return collectable(names, needed_by(retained) | set(pinned), oldest, replaced)


def newest_by_version(names: Iterable[str]) -> dict[int, str]:
    """Of each version, the manifest of the newest attempt in any partition."""
    newest: dict[int, tuple[Attempt, str]] = {}
    for name in names:
        attempt = parse_manifest(name)
        if attempt is not None:
            newest[attempt.version] = max(newest.get(attempt.version, (attempt, name)), (attempt, name))
    return {version: name for version, (_, name) in newest.items()}


def committed_everywhere(names: Iterable[str], committed: int, folders: Sequence[str]) -> int | None:
    """The newest version up to `committed` that every partition has published one at or after.

    A partition may still have to publish the newest; one without any is in its first batch.
    """
    newest: dict[str, int] = {}
    for name in names:
        attempt = parse_manifest(name)
        if attempt is not None and attempt.version <= committed:
            newest[home_of(name)] = max(newest.get(home_of(name), attempt.version), attempt.version)
    if any(folder not in newest for folder in folders):
        return None
    return min(newest[folder] for folder in folders)


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

    def named_by(self, names: Iterable[str]) -> set[str]:
        """What manifests that are about to go name; a damaged one names nothing, and goes all the same."""
        named: set[str] = set()
        for name in names:
            try:
                named |= needed_by({name: self.read(name)})
            except BlobMissing:
                raise
            except RestoreState:
                continue
        return named

    def only(self, names: Collection[str]) -> dict[str, Manifest]:
        """The manifests of those names; drops all others from the cache."""
        for stale in set(self.known).difference(names):
            del self.known[stale]
        return {name: self.read(name) for name in names}


def collectable_of(
    blobs: Blobs, prefix: str, committed: int, retain: int, folders: Sequence[str]
) -> list[str]:
    """What a collection would delete now."""
    names = blobs.list(f"{prefix}/")
    pinned = pinned_files(blobs, prefix, names)
    return doomed_files(_Manifests(blobs, {}), names, committed, retain, folders, pinned)
