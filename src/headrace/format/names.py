"""The names of all files under a state location: formatting and parsing. Pure.

    <query>/runs/<run>
    <query>/<operator>/operator.json
    <query>/<operator>/p<partition>/manifests/v<version>-r<run>-a<attempt>.manifest
    <query>/<operator>/p<partition>/segments/v<version>-r<run>-a<attempt>-s<sequence>.segment
    <query>/<operator>/g<first group>-<last group>/…    the same, after the number of partitions has changed
    <query>/<operator>/layouts/v<version>-r<run>-n<partitions>
    savepoints/<query>/<savepoint>/record
    savepoints/<query>/<savepoint>/complete

`<run>` is the number of the query's start. Numbers are zero-padded, so that names sort by version, then
run, then attempt. A segment's version is that of the first manifest that names it. By it garbage collection
separates old files from those of a running attempt. Versions are batch numbers; -1 is initial state.

The output of a compaction is uploaded before its first manifest is known. The version in its name is a
lease: manifests up to that version may name it, and until then no collector touches it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from headrace.plan.partitions.groups import Groups, groups_of

RUNS = "runs"
SAVEPOINTS = "savepoints/"  # beside the queries: a savepoint outlives its query
_COMPONENT_MAX = 200
_VERSION, _RUN, _ATTEMPT, _SEQUENCE, _PARTITION = 12, 8, 12, 6, 4
SEQUENCES = 10**_SEQUENCE  # how many segments one attempt can name
INITIAL = -1  # the version of state that was written before the first batch
LEASE = 4096  # versions during which the output of a compaction may be named for the first time
_STEM = rf"v(-\d{{{_VERSION - 1}}}|\d{{{_VERSION}}})-r(\d{{{_RUN}}})-a(\d{{{_ATTEMPT}}})"
_MANIFEST = re.compile(rf"{_STEM}\.manifest", re.ASCII)
_SEGMENT = re.compile(rf"{_STEM}-s(\d{{{_SEQUENCE}}})\.segment", re.ASCII)
_FROZEN = re.compile(rf"v(-\d{{{_VERSION - 1}}}|\d{{{_VERSION}}})-r\d{{{_RUN}}}-n\d{{4}}", re.ASCII)
_RANGE = re.compile(r"g(\d{4})-(\d{4})", re.ASCII)
_NUMBERED = re.compile(r"p(\d{4})", re.ASCII)
_RUN_NUMBER = re.compile(rf"\d{{{_RUN}}}", re.ASCII)


class Attempt(NamedTuple):
    """The attempt that wrote a file; compares by version, then run, then attempt."""

    version: int
    run: int
    attempt: int


@dataclass(frozen=True, order=True)
class SegmentId:
    """The fields of a segment's name."""

    attempt: Attempt
    sequence: int


def component(name: str) -> str:
    """`name` as one path component; distinct names stay distinct, and none is hidden or reserved.

    Everything outside `A-Z a-z 0-9 _ - . ~` is percent-encoded. So are a leading dot and the first letter
    of the reserved word. A long name is cut and ends in a digest of the whole.
    """
    quoted = quote(name, safe="", errors="surrogatepass")
    if not quoted:
        return "%"
    if quoted[0] == "." or quoted == RUNS:
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    if len(quoted) > _COMPONENT_MAX:
        digest = hashlib.sha256(quoted.encode()).hexdigest()[:32]
        return f"{quoted[: _COMPONENT_MAX - 34]}%~{digest}"
    return quoted


def operator_prefix(query: str, operator: str) -> str:
    return f"{component(query)}/{component(operator)}"


def operator_record(query: str, operator: str) -> str:
    return f"{operator_prefix(query, operator)}/operator.json"


def partition_prefix(query: str, operator: str, partition: int) -> str:
    return f"{operator_prefix(query, operator)}/p{_padded(partition, _PARTITION)}"


def layout_prefix(query: str, operator: str, partition: int, partitions: int, *, by_range: bool) -> str:
    """The folder of one of `partitions` partitions: by its number, or by its hash groups."""
    if not by_range:
        return partition_prefix(query, operator, partition)
    mine = groups_of(partition, partitions)
    return f"{operator_prefix(query, operator)}/g{_padded(mine.low, 4)}-{_padded(mine.high - 1, 4)}"


def parse_folder(folder: str) -> Groups | int | None:
    """What the name of a partition's folder has: its hash groups, or its number."""
    by_range, numbered = _RANGE.fullmatch(folder), _NUMBERED.fullmatch(folder)
    if by_range is not None:
        return Groups(int(by_range[1]), int(by_range[2]) + 1)
    return None if numbered is None else int(numbered[1])


def frozen_name(query: str, operator: str, version: int, run: int, partitions: int) -> str:
    """The record of the manifests from which a run derives another number of partitions."""
    stem = f"v{_version(version)}-r{_padded(run, _RUN)}-n{_padded(partitions, 4)}"
    return f"{operator_prefix(query, operator)}/layouts/{stem}"


def parse_frozen(name: str) -> int | None:
    """The version in the name of a record of frozen manifests; None for any other name."""
    match = _FROZEN.fullmatch(name.rpartition("/layouts/")[2]) if "/layouts/" in name else None
    return None if match is None else int(match[1])


def runs_folder(query: str) -> str:
    return f"{component(query)}/{RUNS}/"


def run_record(query: str, run: int) -> str:
    return f"{runs_folder(query)}{_padded(run, _RUN)}"


def dropped_record(query: str) -> str:
    """The record of a query that was dropped, while somebody else names its files."""
    return f"{runs_folder(query)}dropped"


def savepoint_folder(query: str, name: str) -> str:
    return f"{SAVEPOINTS}{component(query)}/{component(name)}/"


def manifests_folder(prefix: str) -> str:
    """The folder of the manifests of the partition at `prefix`; ends in a slash."""
    return f"{prefix}/manifests/"


def manifest_name(version: int, run: int, attempt: int) -> str:
    """The name of a manifest, relative to its partition."""
    return f"manifests/{_stem(version, run, attempt)}.manifest"


def segment_name(version: int, run: int, attempt: int, sequence: int) -> str:
    """The name of a segment, relative to its partition."""
    return f"segments/{_stem(version, run, attempt)}-s{_padded(sequence, _SEQUENCE)}.segment"


def leased_name(version: int, run: int, unique: int) -> str:
    """The name of a compaction's output, begun at `version`; `unique` takes the place of an attempt."""
    return segment_name(version + LEASE, run, unique, 0)


def leased_through(name: str) -> int:
    """The last version whose manifest may be the first to name the segment."""
    parsed = parse_segment(name)
    if parsed is None:
        raise ValueError(f"{name!r} is not the name of a segment")
    return parsed.attempt.version


def blob_name(prefix: str, name: str) -> str:
    """The whole name of a segment that a manifest of the partition at `prefix` names.

    A partition's own segments have names relative to it; those of another partition have whole names.
    """
    return f"{prefix}/{name}" if name.startswith("segments/") else name


def home_of(name: str) -> str:
    """The partition of a manifest or segment, by its whole name."""
    return name.rpartition("/")[0].rpartition("/")[0]


def operator_of(name: str) -> str:
    """The folder of the operator of a manifest or segment, by its whole name."""
    return home_of(name).rpartition("/")[0]


def query_of(prefix: str) -> str:
    """The query of an operator's folder, as its id is in names."""
    return prefix.partition("/")[0]


def manifests_of(prefix: str, version: int) -> str:
    """The common prefix of the names of all manifests of one version."""
    return f"{prefix}/manifests/v{_version(version)}-"


def parse_manifest(name: str) -> Attempt | None:
    """The attempt in a manifest's name, with or without folders; None for any other name."""
    match = _MANIFEST.fullmatch(_file(name))
    return Attempt(int(match[1]), int(match[2]), int(match[3])) if match else None


def parse_segment(name: str) -> SegmentId | None:
    """The fields of a segment's name, with or without folders; None for any other name."""
    match = _SEGMENT.fullmatch(_file(name))
    if match is None:
        return None
    return SegmentId(Attempt(int(match[1]), int(match[2]), int(match[3])), int(match[4]))


def parse_run(name: str) -> int | None:
    """The number in the name of a run record, with or without folders; None for any other name."""
    return int(_file(name)) if _RUN_NUMBER.fullmatch(_file(name)) else None


def _stem(version: int, run: int, attempt: int) -> str:
    return f"v{_version(version)}-r{_padded(run, _RUN)}-a{_padded(attempt, _ATTEMPT)}"


def _file(name: str) -> str:
    return name.rpartition("/")[2]


def _version(number: int) -> str:
    """A minus sorts before all digits, so the initial version sorts before all others."""
    return f"{INITIAL:0{_VERSION}d}" if number == INITIAL else _padded(number, _VERSION)


def _padded(number: int, digits: int) -> str:
    if not 0 <= number < 10**digits:
        raise ValueError(f"{number} does not fit the {digits} digits it has in a file name")
    return f"{number:0{digits}d}"
