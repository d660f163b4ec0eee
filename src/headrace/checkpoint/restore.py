"""Finds the manifest of a version, and checks that all its files exist.

A missing version never means an empty state: it raises an error that lists the versions that exist.
"""

from __future__ import annotations

from headrace.blob.base import Blobs
from headrace.errors import BlobMissing, StateCorrupt, StateMissing
from headrace.format.manifest import Manifest, SegmentEntry, decode
from headrace.format.names import blob_name, home_of, manifests_folder, manifests_of, parse_manifest

_REMEDY = (
    "set spark.headrace.state.location to where this query's state is, or bring the missing files back "
    "from a backup, or start again with a new checkpoint location"
)


def restore(blobs: Blobs, prefix: str, base: int | None, *, check_files: bool = True) -> Manifest | None:
    """The manifest that batches after version `base` start from; None when there is no version yet.

    Several attempts may have published one version: the newest run's newest attempt counts. Later
    versions are leftovers of attempts that Spark never committed, and are ignored. Without `check_files`
    a missing file is noticed when it is opened.
    """
    if base is None:
        return None
    name = newest_manifest(blobs.list(manifests_of(prefix, base)))
    if name is None:
        raise _version_missing(blobs, prefix, base)
    manifest = read_manifest(blobs, name)
    if check_files:
        check_segments(blobs, prefix, manifest)
    return manifest


def check_segments(blobs: Blobs, prefix: str, manifest: Manifest) -> None:
    """Raises unless storage has every segment that the manifest names, with its size."""
    for segment in manifest.segments:
        _check_segment(blobs, prefix, manifest, segment)


def refuse_older(manifest: Manifest | None, base_run: int | None) -> None:
    """Raise when Spark's commit log names a newer writing of the version than the one that is there."""
    if manifest is not None and base_run is not None and manifest.run < base_run:
        raise StateMissing(
            f"version {manifest.version} is there as run {manifest.run} wrote it, but Spark's commit log "
            f"names that of run {base_run}",
            hint="checkpoint and state come from different backups: bring back those of one moment",
        )


def newest_manifest(names: list[str]) -> str | None:
    """Of manifests of one version, the one that counts."""
    parsed = [(attempt, name) for name in names if (attempt := parse_manifest(name)) is not None]
    return max(parsed)[1] if parsed else None


def read_manifest(blobs: Blobs, name: str) -> Manifest:
    """Reads the manifest at `name`; its content must match the name."""
    where = f"{blobs.root}/{name}"
    manifest = decode(blobs.get(name), where)
    if manifest.written_by != parse_manifest(name):
        raise StateCorrupt(
            f"{where} holds the manifest of version {manifest.version}, run {manifest.run}, "
            f"attempt {manifest.attempt}",
            hint="it was copied or renamed: bring the right file back from a backup",
        )
    return manifest


def versions(blobs: Blobs, prefix: str) -> list[int]:
    """All versions that have a manifest, oldest first."""
    parsed = map(parse_manifest, blobs.list(manifests_folder(prefix)))
    return sorted({attempt.version for attempt in parsed if attempt is not None})


def _check_segment(blobs: Blobs, prefix: str, manifest: Manifest, segment: SegmentEntry) -> None:
    name = blob_name(prefix, segment.name)
    prefix = home_of(name)
    try:
        size = blobs.size(name)
    except BlobMissing as error:
        count = len(blobs.list(f"{prefix}/segments/"))
        raise StateMissing(
            f"segment {blobs.root}/{name} is missing: version {manifest.version} needs it "
            f"({len(manifest.segments)} segments needed, {count} files exist; {_listed(blobs, prefix)})",
            hint=_REMEDY,
        ) from error
    if size != segment.size:
        raise StateCorrupt(
            f"segment {blobs.root}/{name} has {size} bytes, and {segment.size} in version "
            f"{manifest.version}",
            hint="it was cut short or replaced: bring it back from a backup, "
            "or start again with a new checkpoint location",
        )


def _version_missing(blobs: Blobs, prefix: str, base: int) -> StateMissing:
    return StateMissing(
        f"version {base} is missing from {blobs.root}/{prefix}, and from this machine's log: "
        f"{_listed(blobs, prefix)}",
        hint=f"{_REMEDY}; where a machine was lost between two commits, hr.start(writer) or "
        "`headrace recover <checkpoint>` takes the last batch back; a foreachBatch function that left "
        "that batch unread must be corrected first",
    )


def _listed(blobs: Blobs, prefix: str) -> str:
    existing = versions(blobs, prefix)
    if not existing:
        return "no version is there"
    shown = ", ".join(map(str, existing[-8:]))
    return f"versions there: {'… ' if len(existing) > 8 else ''}{shown}"
