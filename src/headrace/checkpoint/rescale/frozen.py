"""The manifests from which a start derives another number of partitions, frozen in one record.

A start that changes the number puts the record if absent, before any of its tasks has a row. All its hosts
derive their bases from it: an attempt of an earlier start that publishes afterwards changes nothing.
Threads: any, on any number of machines; storage decides which host's record counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, put_or_read
from headrace.checkpoint.rescale.folders import Folder, folders_of
from headrace.checkpoint.restore import newest_manifest
from headrace.clock import Clock, Deadline
from headrace.errors import BlobMissing, StateMissing
from headrace.format.names import frozen_name, manifests_of
from headrace.format.record import corrupt, decode_record, encode_record
from headrace.plan.partitions.groups import Groups
from headrace.plan.partitions.layouts import Origin
from headrace.plan.times import TIMES
from headrace.wire.contract import Ticket

FORMAT_VERSION = 1
_KIND = "layout"
Together = Callable[[Sequence[Callable[[], list[str]]]], list[list[str]]]  # runs requests, perhaps at once


@dataclass(frozen=True)
class Parent:
    """A manifest of the base, by its whole name, and the hash groups of its partition."""

    manifest: str
    groups: Groups


def one_by_one(calls: Sequence[Callable[[], list[str]]]) -> list[list[str]]:
    """The results of calls."""
    return [call() for call in calls]


def parents_of(
    blobs: Blobs, ticket: Ticket, run: int, clock: Clock, together: Together = one_by_one
) -> list[Parent]:
    """The frozen parents of a ticket whose base is in another layout; the first call freezes them."""
    assert ticket.origin is not None
    assert ticket.base is not None
    if ticket.origin.parents:
        return read_frozen(blobs, ticket.origin.parents)
    place = (ticket.query, ticket.operator.name, ticket.base)
    name = frozen_name(*place, run, ticket.operator.partitions)
    try:
        return read_frozen(blobs, name)
    except BlobMissing:
        parents = published_parents(blobs, *place, ticket.origin, clock, together)
        return put_frozen(blobs, name, parents, clock)


def put_frozen(
    blobs: Blobs, name: str, parents: Sequence[Parent], clock: Clock, origins: Sequence[str] = ()
) -> list[Parent]:
    """Records parents under `name`; returns those that the record has in the end.

    `origins` are the operators' folders whose files the parents of a branch name.
    """
    body = {"parents": rows_of(parents)} | ({"origins": list(origins)} if origins else {})
    data = encode_record(_KIND, FORMAT_VERSION, body)
    return _decode(put_or_read(blobs, name, data, clock=clock, retry=Retry()), f"{blobs.root}/{name}")


def read_frozen(blobs: Blobs, name: str) -> list[Parent]:
    return _decode(blobs.get(name), f"{blobs.root}/{name}")


def read_origins(blobs: Blobs, name: str) -> list[str]:
    """The operators' folders whose files the parents of a branch name; empty where the record is gone."""
    try:
        body = decode_record(_KIND, FORMAT_VERSION, blobs.get(name), f"{blobs.root}/{name}")
    except BlobMissing:
        return []
    return [str(folder) for folder in body.get("origins", [])]


def rows_of(parents: Sequence[Parent]) -> list[list[str | int]]:
    """Parents as plain values."""
    return [[parent.manifest, parent.groups.low, parent.groups.high] for parent in parents]


def parents_from(rows: Sequence[Sequence[str | int]]) -> list[Parent]:
    """Parents of plain values."""
    return [Parent(str(name), Groups(int(low), int(high))) for name, low, high in rows]


def published_parents(
    blobs: Blobs,
    query: str,
    operator: str,
    version: int,
    origin: Origin,
    clock: Clock,
    together: Together = one_by_one,
) -> list[Parent]:
    """The newest manifest of every old partition; waits for a host that is about to publish it."""
    deadline = Deadline(TIMES.gap_settle_s * 1000, clock)
    folders = folders_of(query, operator, origin)
    while True:
        prefixes = [manifests_of(folder.prefix, version) for folder in folders]
        listed = together([partial(blobs.list, prefix) for prefix in prefixes])
        newest = [newest_manifest(names) for names in listed]
        parents = [
            Parent(name, folder.groups)
            for name, folder in zip(newest, folders, strict=True)
            if name is not None
        ]
        if len(parents) == len(folders):
            return parents
        if deadline.is_over:
            raise _unpublished(blobs, version, origin, folders, newest)
        clock.sleep_ms(TIMES.gap_look_s * 1000)


def _unpublished(
    blobs: Blobs, version: int, origin: Origin, folders: Sequence[Folder], newest: Sequence[str | None]
) -> StateMissing:
    lacking = [folder.prefix for folder, name in zip(folders, newest, strict=True) if name is None]
    return StateMissing(
        f"the number of partitions cannot change: version {version} is not on shared storage for "
        f"{len(lacking)} of {len(folders)} partitions, such as {blobs.root}/{lacking[0]}",
        hint="no row was written: the version may be in the log of the machine that wrote it. Start there "
        f"with hr.start(writer), or once more with spark.headrace.partitions={origin.partitions}",
    )


def _decode(data: bytes, where: str) -> list[Parent]:
    body = decode_record(_KIND, FORMAT_VERSION, data, where)
    try:
        return parents_from(body["parents"])
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt(_KIND, where, f"its fields are not those of a layout ({error})") from error
