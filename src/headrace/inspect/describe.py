"""What there is of a query's state: operators, versions, sizes, the largest keys, what would be collected.

Everything but the largest keys comes from records and manifests; no state row is read.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headrace.checkpoint.collect import collectable_of
from headrace.checkpoint.rescale.folders import folders_at
from headrace.errors import StateMissing
from headrace.format.manifest import Manifest
from headrace.format.names import operator_prefix
from headrace.inspect.state import State
from headrace.inspect.versions import read_manifests, readable
from headrace.plan.epochs import base_of
from headrace.plan.window import kind_of

OPERATORS_SCHEMA = pa.schema(
    [
        ("operator", pa.string()),
        ("work", pa.string()),
        ("window", pa.string()),
        ("store", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("partitions", pa.int32()),
        ("version", pa.int64()),
        ("versions", pa.list_(pa.int64())),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("files", pa.int64()),
        ("late_rows", pa.int64()),
        ("location", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def operator_rows(state: State) -> list[dict[str, Any]]:
    """One row per operator, in `OPERATORS_SCHEMA`; an operator without a version has nulls."""
    return [_operator_row(state, name) for name in state.operators]


def _operator_row(state: State, name: str) -> dict[str, Any]:
    record = state.record(name)
    spec = record.spec
    row: dict[str, Any] = {
        "operator": name,
        "work": spec.work.name,
        "window": kind_of(spec.window),
        "store": spec.store,
        "keys": [field.label or field.name for field in spec.keys],
        "partitions": spec.partitions,
        "location": record.location,
        "versions": [],
    }
    try:
        complete = state.published(name)
    except StateMissing:  # the location is not there yet, or no longer
        return row
    versions = readable(complete, state.checkpoint.committed)
    if not versions:
        return row
    manifests = read_manifests(state.blobs(name), complete[versions[-1]])
    newest = {"versions": versions, "version": versions[-1], "at": planned_at(state, versions[-1])}
    return row | newest | totals(manifests)


def planned_at(state: State, version: int) -> datetime | None:
    """When the batch of a version was planned."""
    planned_ms = state.checkpoint.planned_ms(version)
    return None if planned_ms is None else datetime.fromtimestamp(planned_ms / 1000, UTC)


def totals(manifests: tuple[Manifest, ...]) -> dict[str, int]:
    """What the manifests of one version count."""
    return {
        "rows": sum(manifest.keys for manifest in manifests),
        "bytes": sum(manifest.state_bytes for manifest in manifests),
        "files": sum(len(manifest.segments) for manifest in manifests),
        "late_rows": sum(manifest.late_rows_total for manifest in manifests),
    }


def version_rows(state: State, operator: str) -> list[dict[str, Any]]:
    """One row per version that can be read: its sizes, and where event time stands."""
    blobs, complete = state.blobs(operator), state.published(operator)
    rows = []
    for version in readable(complete, state.checkpoint.committed):
        manifests = read_manifests(blobs, complete[version])
        closed = [one.closed_through_us for one in manifests if one.closed_through_us is not None]
        row: dict[str, Any] = {
            "version": version,
            "run": manifests[0].run,
            "at": planned_at(state, version),
            "closed_through_us": max(closed, default=None),
        }
        rows.append(row | totals(manifests))
    return rows


def statistics(state: State, operator: str, retain: int = 20, largest: int = 10) -> dict[str, Any]:
    """Sizes of the newest version by partition, its largest keys, and what a collection would delete."""
    table = state.table(operator)
    partitions = [
        {"partition": number, "store": manifest.store or table.spec.store} | totals((manifest,))
        for number, manifest in enumerate(table.manifests)
    ]
    return {
        "operator": operator,
        "version": table.version,
        "at": planned_at(state, table.version),
        "committed": state.checkpoint.committed,
        "partitions": partitions,
        "largest_keys": largest_keys(state, operator, largest),
        "collectable": collectable_files(state, operator, retain),
    } | totals(tuple(table.manifests))


def largest_keys(state: State, operator: str, many: int) -> list[dict[str, Any]]:
    """The keys with most state rows, counted over the whole newest version."""
    table = state.table(operator)
    names = [field.name for field in table.spec.keys]  # without the cells of a processor
    labels = [field.label or field.name for field in table.spec.keys]
    counts: Counter[tuple[Any, ...]] = Counter()
    for partition in table.partitions:
        mine: Counter[tuple[Any, ...]] = Counter()  # no key is in two partitions
        for batch in table.wire_batches(partition):
            if names:
                grouped = (
                    pa.Table.from_batches([batch.select(names)])
                    .group_by(names)
                    .aggregate([([], "count_all")])
                )
                columns = [grouped.column(name).to_pylist() for name in [*names, "count_all"]]
                mine.update({row[:-1]: row[-1] for row in zip(*columns, strict=True)})
        counts.update(dict(mine.most_common(many)))
    return [dict(zip(labels, key, strict=True)) | {"rows": n} for key, n in counts.most_common(many)]


def collectable_files(state: State, operator: str, retain: int) -> dict[str, int]:
    """How many files, and bytes, the next collection may delete when `retain` versions are kept."""
    record, blobs, committed = state.record(operator), state.blobs(operator), state.checkpoint.committed
    base = None if committed is None else base_of(record.begun, committed + 1)
    if base is None:
        return {"files": 0, "bytes": 0}
    folders = folders_at(state.query, operator, record.known_layouts, base)
    place = (operator_prefix(state.query, operator), base, retain)
    doomed = collectable_of(blobs, *place, [folder.prefix for folder in folders])
    return {"files": len(doomed), "bytes": sum(map(blobs.size, doomed))}
