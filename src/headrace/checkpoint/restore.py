"""Finding the manifest of a version, and making sure that all it names is there.

Never a silent restart from empty, never another version than the one asked for: what does not fit raises
and says what is there instead.
"""

from __future__ import annotations

from headrace.blob.base import Blobs
from headrace.errors import BlobMissing, StateCorrupt, StateMissing
from headrace.format.manifest import Manifest, SegmentEntry, decode
from headrace.format.names import manifests_folder, manifests_of, parse_manifest

_REMEDY = (
    "set spark.headrace.state.location to where this query's state is, or bring the missing files back "
    "from a backup, or start again with a new checkpoint location"
)


def restore(blobs: Blobs, prefix: str, base: int | None) -> Manifest | None:
    """The manifest that batches after version `base` start from; None when there is no version yet.

    Several attempts may have published one version: the newest run's newest attempt is the truth. Later
    versions, leftovers of attempts that Spark never committed, are not looked at.
    """
    if base is None:
        return None
    name = newest_manifest(blobs.list(manifests_of(prefix, base)))
    if name is None:
        raise _version_missing(blobs, prefix, base)
    manifest = read_manifest(blobs, name)
    for segment in manifest.segments:
        _check_segment(blobs, prefix, manifest, segment)
    return manifest


def newest_manifest(names: list[str]) -> str | None:
    """Of manifests of one version, the one that counts."""
    parsed = [(attempt, name) for name in names if (attempt := parse_manifest(name)) is not None]
    return max(parsed)[1] if parsed else None


def read_manifest(blobs: Blobs, name: str) -> Manifest:
    """The manifest at `name`, which must be the one its name says."""
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
    name = f"{prefix}/{segment.name}"
    try:
        size = blobs.size(name)
    except BlobMissing as error:
        there = len(blobs.list(f"{prefix}/segments/"))
        raise StateMissing(
            f"segment {blobs.root}/{name} is missing: version {manifest.version} needs it "
            f"({len(manifest.segments)} segments needed, {there} files are there; {_found(blobs, prefix)})",
            hint=_REMEDY,
        ) from error
    if size != segment.size:
        raise StateCorrupt(
            f"segment {blobs.root}/{name} has {size} bytes, version {manifest.version} knows it with "
            f"{segment.size}",
            hint="it was cut short or replaced: bring it back from a backup, "
            "or start again with a new checkpoint location",
        )


def _version_missing(blobs: Blobs, prefix: str, base: int) -> StateMissing:
    return StateMissing(
        f"version {base} is missing from {blobs.root}/{prefix}, and from this machine's log: "
        f"{_found(blobs, prefix)}",
        hint=f"{_REMEDY}; where a machine was lost between two commits, hr.start(writer) or "
        "`headrace recover <checkpoint>` takes the last batch back",
    )


def _found(blobs: Blobs, prefix: str) -> str:
    found = versions(blobs, prefix)
    if not found:
        return "no version is there"
    shown = ", ".join(map(str, found[-8:]))
    return f"versions there: {'… ' if len(found) > 8 else ''}{shown}"
