"""Which versions of an operator can be read, and which one a reader gets.

A version can be read when every partition has published it and Spark has committed its batch. So a reader
never sees a version of which some partitions are missing, nor one that Spark may replay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headrace.blob.base import Blobs
from headrace.checkpoint.rescale.folders import folders_of
from headrace.checkpoint.restore import newest_manifest, read_manifest
from headrace.errors import QueryError, StateMissing
from headrace.format.manifest import Manifest
from headrace.format.names import INITIAL, manifests_folder, parse_manifest
from headrace.plan.partitions.layouts import Layout

Published = Mapping[int, Sequence[str]]  # of each version, the newest manifest of each partition, by name
_SHOWN = 8


def published(blobs: Blobs, query: str, operator: str, layouts: Sequence[Layout]) -> dict[int, list[str]]:
    """The versions that all partitions of their layout have published."""
    complete: dict[int, list[str]] = {}
    for layout, ends in zip(layouts, (*(one.since for one in layouts[1:]), math.inf), strict=True):
        folders = folders_of(query, operator, layout)
        together = _published(blobs, [folder.prefix for folder in folders])
        complete |= {at: names for at, names in together.items() if layout.since <= at < ends}
    return complete


def _published(blobs: Blobs, prefixes: Sequence[str]) -> dict[int, list[str]]:
    """The versions that all folders have."""
    by_partition = []
    for prefix in prefixes:
        names: dict[int, list[str]] = {}
        for name in blobs.list(manifests_folder(prefix)):
            attempt = parse_manifest(name)
            if attempt is not None:
                names.setdefault(attempt.version, []).append(name)
        by_partition.append(names)
    complete = set.intersection(*(set(names) for names in by_partition)) if by_partition else set()
    return {
        version: [newest_manifest(names[version]) or "" for names in by_partition]
        for version in sorted(complete)
    }


def readable(complete: Published, committed: int | None) -> list[int]:
    """The versions that may be read, oldest first."""
    last = INITIAL if committed is None else committed
    return sorted(version for version in complete if version <= last)


def chosen(
    operator: str,
    versions: Sequence[int],
    committed: int | None,
    version: int | None = None,
    as_of_batch: int | None = None,
) -> int:
    """The version that a reader gets; raises `StateMissing` where there is none such."""
    if version is not None and as_of_batch is not None:
        raise QueryError("a version and a batch are both given", hint="give one of the two")
    if version is not None:
        if version in versions:
            return version
        if committed is None or version > committed:
            raise _missing(operator, f"version {version} is not committed yet", versions)
        raise _missing(operator, f"version {version} is not there, or not retained", versions)
    bound = versions[-1] if as_of_batch is None and versions else as_of_batch
    fitting = [number for number in versions if bound is not None and number <= bound]
    if not fitting:
        what = "no version is committed" if as_of_batch is None else f"no version up to batch {as_of_batch}"
        raise _missing(operator, what, versions)
    return fitting[-1]


def read_manifests(blobs: Blobs, names: Sequence[str]) -> tuple[Manifest, ...]:
    """The manifests of one version, by partition."""
    return tuple(read_manifest(blobs, name) for name in names)


def _missing(operator: str, what: str, versions: Sequence[int]) -> StateMissing:
    shown = ", ".join(map(str, versions[-_SHOWN:]))
    readable_versions = (
        f"versions that can be read: {'… ' if len(versions) > _SHOWN else ''}{shown or 'none'}"
    )
    return StateMissing(
        f"operator {operator}: {what} ({readable_versions})",
        hint="choose one of these, or leave the version out; spark.headrace.state.retain is the number "
        "of versions that are kept",
    )
