"""The manifest: the segments of one version of one partition, and its event times.

A manifest never changes. It names its parent by write id, which separates two attempts at one version.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from headrace.format.names import Attempt, manifest_name, parse_segment
from headrace.format.record import corrupt, decode_record, encode_record
from headrace.plan.partitions.groups import GROUPS, Groups

FORMAT_VERSION = 3
_OWN_FORMAT = 2  # of a manifest that names only whole segments of its own partition
_KIND = "manifest"
_FOLDER = "segments"
_WHOLE_PARTS = 4  # folders of a whole name: query, operator, partition, segments


@dataclass(frozen=True)
class SegmentEntry:
    """One segment of a version; slices are inclusive bounds.

    `name` is relative to the partition, or the whole name of a segment of another partition. Of that one
    only the rows of `groups` count.

    `kind` is the role of its rows in the store that wrote it; order counts among segments of one kind. A
    file of another format has the `label` that its own format uses.
    """

    name: str
    size: int
    rows: int
    min_slice: int
    max_slice: int
    crc: int
    kind: str = "rows"
    label: str = ""
    low: int = 0  # hash groups
    high: int = GROUPS

    @property
    def groups(self) -> Groups:
        return Groups(self.low, self.high)

    @property
    def is_own(self) -> bool:
        """Whether it is a whole segment of the partition itself."""
        return self.name.startswith(f"{_FOLDER}/") and self.groups.are_all


@dataclass(frozen=True)
class Manifest:
    """One version of one partition, as one attempt wrote it."""

    write_id: str  # unique to this write
    version: int
    parent_write_id: str | None  # None: the first version of the operator
    parent_version: int | None
    run: int
    attempt: int
    operator_digest: str
    partition: int
    segments: tuple[SegmentEntry, ...]  # oldest first; of two rows for one key the later segment's counts
    closed_through_us: int | None  # slices whose window ends at or before this are dead
    frontiers_ms: tuple[int | None, ...]  # largest event time seen, one per watermark node
    late_rows_total: int
    keys: int  # rows of state, as far as known
    width: int  # 64-bit words of a state row
    store: str = ""  # the store that wrote the segments; empty: the operator's default

    @property
    def name(self) -> str:
        """The manifest's name, relative to the partition."""
        return manifest_name(self.version, self.run, self.attempt)

    @property
    def written_by(self) -> Attempt:
        return Attempt(self.version, self.run, self.attempt)

    @property
    def state_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True)
class Derived(Manifest):
    """The base of a partition's first batch in a new layout, made of other partitions' manifests.

    It is never written. `parents` are the whole names of those manifests.
    """

    parents: tuple[str, ...] = ()


def encode(manifest: Manifest) -> bytes:
    """The manifest's bytes; refuses one that `decode` would refuse.

    Without segments of other partitions they are those of earlier releases, which can read them.
    """
    is_own = all(segment.is_own for segment in manifest.segments)
    body = {**vars(manifest), "segments": [_entry_body(segment) for segment in manifest.segments]}
    problem = "it is only derived" if isinstance(manifest, Derived) else _problem(manifest)
    if problem:
        raise ValueError(f"not a manifest: {problem}")
    return encode_record(_KIND, _OWN_FORMAT if is_own else FORMAT_VERSION, body)


def _entry_body(segment: SegmentEntry) -> dict[str, Any]:
    body = dict(vars(segment))
    if segment.is_own:
        del body["low"], body["high"]
    return body


def decode(data: bytes, where: str) -> Manifest:
    """The manifest in `data`; `where` names the file in errors."""
    body = decode_record(_KIND, FORMAT_VERSION, data, where)
    try:
        manifest = _from_body(body)
    except (KeyError, TypeError) as error:
        raise corrupt(_KIND, where, f"its fields are not those of a manifest ({error})") from error
    problem = _problem(manifest)
    if problem:
        raise corrupt(_KIND, where, problem)
    return manifest


def succession_problem(parent: Manifest | None, manifest: Manifest) -> str | None:
    """Why `manifest` may not follow `parent`, or None when it may.

    A segment that the parent does not name must carry the new version in its name, or as the output of a
    compaction a later one. Garbage collection relies on this: an older file that no manifest names will
    never be named again.
    """
    named = set() if parent is None else {segment.name for segment in parent.segments}
    if manifest.parent_write_id != (None if parent is None else parent.write_id):
        return "it names another parent"
    if parent is not None and parent.version >= manifest.version:
        return f"its version {manifest.version} does not come after its parent's {parent.version}"
    for segment in manifest.segments:
        parsed = parse_segment(segment.name)
        if segment.name not in named and (parsed is None or parsed.attempt.version < manifest.version):
            return f"{segment.name} is new in version {manifest.version} but has the name of another one"
    return None


def _from_body(body: dict[str, Any]) -> Manifest:
    return Manifest(
        **{
            **body,
            "segments": tuple(SegmentEntry(**segment) for segment in body["segments"]),
            "frontiers_ms": tuple(body["frontiers_ms"]),
        }
    )


def _problem(manifest: Manifest) -> str | None:
    """Why these values cannot be a manifest's, or None."""
    strings = {"write_id", "operator_digest", "store"}
    optional = {"parent_write_id", "parent_version", "closed_through_us"}
    for field in fields(Manifest):
        value = getattr(manifest, field.name)
        if field.name in ("segments", "frontiers_ms") or (value is None and field.name in optional):
            continue
        expected = str if field.name in strings or field.name == "parent_write_id" else int
        if type(value) is not expected:
            return f"{field.name} is {value!r}"
    if not all(value is None or type(value) is int for value in manifest.frontiers_ms):
        return f"frontiers_ms is {manifest.frontiers_ms!r}"
    if (manifest.parent_write_id is None) != (manifest.parent_version is None):
        return "it has half a parent"
    return next(filter(None, map(_segment_problem, manifest.segments)), None)


def _segment_problem(segment: SegmentEntry) -> str | None:
    bounds = (segment.min_slice, segment.max_slice, segment.low, segment.high)
    numbers = (segment.size, segment.rows, segment.crc, *bounds)
    folder, _, file = segment.name.rpartition("/")
    parts = folder.split("/")
    is_whole = len(parts) == _WHOLE_PARTS and not {"", ".", ".."} & set(parts)
    if parts[-1] != _FOLDER or not (len(parts) == 1 or is_whole) or parse_segment(file) is None:
        return f"{segment.name!r} is not the name of a segment"
    if type(segment.kind) is not str or type(segment.label) is not str or "/" in segment.label:
        return f"{segment.name} has the kind {segment.kind!r} and the label {segment.label!r}"
    if any(type(number) is not int for number in numbers):
        return f"{segment.name} has the numbers {numbers!r}"
    return None
