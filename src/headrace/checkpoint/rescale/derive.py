"""The base of a new partition: the segments of the old ones, each clipped to the partition's hash groups.

Nothing is copied or written. `merged` decides, and knows no storage.
Invariants: the groups of all new partitions cover those of the old ones once, so every row is in one base,
and every running total goes to one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headrace.blob.base import Blobs
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.rescale.frozen import Parent, parents_of
from headrace.checkpoint.restore import check_segments, read_manifest
from headrace.clock import Clock
from headrace.errors import OperatorChanged
from headrace.format.manifest import Derived, Manifest, SegmentEntry
from headrace.format.names import blob_name, home_of
from headrace.plan.partitions.groups import Groups, groups_of
from headrace.store.rocksdb.sst import SST
from headrace.wire.contract import Ticket


@dataclass(frozen=True)
class Old:
    """An old partition: the name of its manifest, its hash groups, and the manifest."""

    name: str
    groups: Groups
    manifest: Manifest

    @property
    def prefix(self) -> str:
        return home_of(self.name)


def derived_base(home: PartitionHome, ticket: Ticket, run: int, clock: Clock) -> Derived:
    """The base of a ticket whose base is in another layout; all its files are checked."""
    mine = groups_of(ticket.partition, ticket.operator.partitions)
    parents = parents_of(home.blobs, ticket, run, clock, home.files.in_parallel)
    return derived_for(home.blobs, parents, mine, ticket.partition, home.read_manifests)


def derived_for(
    blobs: Blobs,
    parents: Sequence[Parent],
    mine: Groups,
    partition: int,
    read: Callable[[Sequence[str]], list[Manifest]] | None = None,
) -> Derived:
    """The state of some hash groups, by the frozen parents of all groups."""
    shared = [parent for parent in parents if parent.groups.shared_with(mine).count]
    names = [parent.manifest for parent in shared]
    manifests = [read_manifest(blobs, name) for name in names] if read is None else read(names)
    olds = [
        Old(parent.manifest, parent.groups, manifest)
        for parent, manifest in zip(shared, manifests, strict=True)
    ]
    base = merged(olds, mine, partition)
    if blobs.in_place:  # elsewhere each check of a file would be a request
        check_segments(blobs, "", base)
    return base


def merged(olds: Sequence[Old], mine: Groups, partition: int) -> Derived:
    """The manifest of `mine` over old partitions that share groups with it."""
    refuse_mixture([old.manifest for old in olds])
    first = olds[0].manifest
    segments = _by_size([_clipped(old, mine) for old in olds])
    names = tuple(old.name for old in olds)
    return Derived(
        write_id=hashlib.sha256("\n".join((*names, f"{mine}")).encode()).hexdigest()[:32],
        version=first.version,
        parent_write_id=None,
        parent_version=None,
        run=max(old.manifest.run for old in olds),
        attempt=max(old.manifest.attempt for old in olds),
        operator_digest=first.operator_digest,
        partition=partition,
        segments=segments,
        closed_through_us=first.closed_through_us,
        frontiers_ms=first.frontiers_ms,
        late_rows_total=sum(old.manifest.late_rows_total for old in olds if _has_first(mine, old)),
        keys=sum(_share(old.manifest.keys, old.groups, mine) for old in olds),
        width=first.width,
        store=first.store,
        parents=names,
    )


def refuse_mixture(manifests: Sequence[Manifest]) -> None:
    """Raises where one partition cannot have the state of these."""
    if any(entry.kind == SST for manifest in manifests for entry in manifest.segments):
        raise OperatorChanged(
            "the number of partitions cannot change: the state is in the rocksdb store, whose files "
            "cannot be shared",
            hint="put spark.headrace.partitions back to the old number, or start with a new checkpoint",
        )
    stores = sorted({manifest.store for manifest in manifests})
    if len(stores) > 1:
        raise OperatorChanged(
            f"the number of partitions cannot change yet: its partitions are in the stores "
            f"{' and '.join(stores)}",
            hint="go on with the old number until all partitions have moved to one store, or set a "
            "multiple of the old number",
        )
    times = {(manifest.closed_through_us, manifest.frontiers_ms) for manifest in manifests}
    if len(times) > 1:
        raise OperatorChanged(
            "the number of partitions cannot change: the old partitions differ in event time",
            hint="run one more batch with the old number of partitions first",
        )


def _clipped(old: Old, mine: Groups) -> list[SegmentEntry]:
    """The old partition's segments that may have rows of `mine`."""
    clipped = []
    for entry in old.manifest.segments:
        groups = entry.groups.shared_with(mine)
        if old.groups.shared_with(mine) == old.groups:
            groups = entry.groups  # all of the old partition: nothing is to be left out
        if groups.count:
            rows = _share(entry.rows, entry.groups.shared_with(old.groups), mine)
            name = blob_name(old.prefix, entry.name)
            clipped.append(replace(entry, name=name, low=groups.low, high=groups.high, rows=rows))
    return clipped


def _by_size(lists: Sequence[list[SegmentEntry]]) -> tuple[SegmentEntry, ...]:
    """The segments of all old partitions, each partition's in its order, larger ones first.

    Sizes then fall from old to new, as within one partition: a compaction does not take one old partition
    for new rows of another.
    """
    left, together = [list(entries) for entries in lists], []
    while any(left):
        largest = max((entries for entries in left if entries), key=lambda entries: entries[0].size)
        together.append(largest.pop(0))
    return tuple(together)


def _has_first(mine: Groups, old: Old) -> bool:
    """Whether the first group of an old partition is of `mine`: its running totals go there."""
    return mine.low <= old.groups.low < mine.high


def _share(count: int, of: Groups, mine: Groups) -> int:
    """About how many of `count` rows are of `mine`; more than none of some."""
    return -(-count * of.shared_with(mine).count // max(1, of.count))
