"""Verifies a query's state: every record, manifest, reference and checksum, each file once.

Nothing is changed. A finding names the file, the versions that need it, and what to do.
Memory: the rows of one chunk of one file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headrace.blob.base import Blobs
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.operator_record import differences, read_operator
from headrace.checkpoint.records import OperatorRecord
from headrace.checkpoint.rescale.folders import folders_of
from headrace.checkpoint.restore import read_manifest
from headrace.clock import SystemClock
from headrace.errors import BlobMissing, HeadraceError, RestoreState, StateCorrupt, StateMissing
from headrace.format.manifest import Manifest, SegmentEntry
from headrace.format.names import blob_name, manifests_folder, operator_prefix, parse_segment
from headrace.inspect.checkpoint import OFFSETS
from headrace.inspect.state import State
from headrace.operators.open import kinds_of
from headrace.plan.epochs import base_of
from headrace.plan.partitions.layouts import layout_at
from headrace.row.chunks import SCAN_ROWS
from headrace.store.rocksdb.sst import SST, checksum

Level = Literal["damage", "missing", "note"]
Manifests = dict[str, list[Manifest]]  # by folder


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing."""

    level: Level
    operator: str
    what: str
    remedy: str


@dataclass
class Report:
    """What was verified, and what was found."""

    findings: list[Finding] = field(default_factory=list)
    manifests: int = 0
    files: int = 0
    bytes: int = 0

    @property
    def is_healthy(self) -> bool:
        return all(finding.level == "note" for finding in self.findings)


def examine(state: State) -> Report:
    """Verifies all that a checkpoint names."""
    report = Report()
    for operator in state.operators:
        examination = _Examination(state, state.record(operator), report)
        try:
            examination.run()
        except HeadraceError as error:
            examination.add("missing", error.message, error.hint)
    planned, committed = state.checkpoint.batches(OFFSETS), state.checkpoint.committed
    ahead = [batch for batch in planned if committed is None or batch > committed]
    if ahead:
        report.findings.append(
            Finding(
                "note",
                "",
                f"Spark has planned batch {ahead[-1]} and not committed it",
                "nothing to do: a running query finishes it, a stopped one repeats it at its next start",
            )
        )
    return report


@dataclass
class _Examination:
    """Of one operator; `_bad` are files that fail, by their whole names."""

    state: State
    record: OperatorRecord
    report: Report
    _bad: dict[str, HeadraceError] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.record.spec.name

    def add(self, level: Level, what: str, remedy: str) -> None:
        self.report.findings.append(Finding(level, self.name, what, remedy))

    def run(self) -> None:
        blobs = self.state.blobs(self.name)
        self._operator_record(blobs)
        manifests = {prefix: list(self._manifests(blobs, prefix)) for prefix in self._prefixes()}
        for prefix, versions in manifests.items():
            for manifest in versions:
                self._files(blobs, prefix, manifest)
        self._report_bad(manifests)
        self._report_base()
        self._report_leftovers(blobs, manifests)

    def _prefixes(self) -> list[str]:
        """The folders of the partitions of all layouts."""
        layouts, place = self.record.known_layouts, (self.state.query, self.name)
        folders = [folder.prefix for layout in layouts for folder in folders_of(*place, layout)]
        return list(dict.fromkeys(folders))

    def _operator_record(self, blobs: Blobs) -> None:
        try:
            recorded = read_operator(blobs, self.state.query, self.name)
        except RestoreState as error:
            self.add("damage", error.message, error.hint)
            return
        if recorded is None:
            if self.record.begun:
                self.add(
                    "missing",
                    f"{blobs.root} has no record of the operator",
                    "bring operator.json back from a backup of the state location",
                )
            return
        changed = differences(recorded, self.record.spec)
        if changed:
            self.add(
                "damage",
                f"checkpoint and state are of different operators: {'; '.join(changed)}",
                "bring state and checkpoint back from one backup",
            )

    def _manifests(self, blobs: Blobs, prefix: str) -> Iterator[Manifest]:
        for name in blobs.list(manifests_folder(prefix)):
            try:
                manifest = read_manifest(blobs, name)
            except BlobMissing:  # a collector was ahead
                continue
            except RestoreState as error:
                self.add("damage", error.message, error.hint)
                continue
            self.report.manifests += 1
            yield manifest

    def _files(self, blobs: Blobs, prefix: str, manifest: Manifest) -> None:
        home = PartitionHome.of(blobs, prefix, SystemClock())
        for entry in manifest.segments:
            key = blob_name(prefix, entry.name)
            if key in self._seen:
                continue
            self._seen.add(key)
            self.report.files, self.report.bytes = self.report.files + 1, self.report.bytes + entry.size
            try:
                self._verify(home, manifest, entry)
            except HeadraceError as error:
                self._bad[key] = error

    def _verify(self, home: PartitionHome, manifest: Manifest, entry: SegmentEntry) -> None:
        """Reads a whole file; raises for the first byte that is wrong."""
        size = home.blobs.size(blob_name(home.prefix, entry.name))
        if size != entry.size:
            raise StateCorrupt(f"{home.where}/{entry.name} has {size} bytes, and not {entry.size}")
        if entry.kind == SST:
            if _checksum(home, entry.name) != entry.crc:
                raise StateCorrupt(f"{home.where}/{entry.name} fails its checksum")
            return
        kinds = {kind.name: kind for kind in kinds_of(self.record.spec, manifest.store)}
        if entry.kind not in kinds:
            raise StateCorrupt(f"{home.where}/{entry.name} is of an unknown kind, {entry.kind!r}")
        segment = home.open_segment(entry.name, kinds[entry.kind], entry.crc)
        try:
            for section in segment.sections:
                for _ in segment.scan(section, SCAN_ROWS):
                    pass
                segment.release(section)
        finally:
            segment.close()

    def _report_bad(self, manifests: Manifests) -> None:
        for name, error in self._bad.items():
            pairs = ((at, manifest) for at, versions in manifests.items() for manifest in versions)
            needing = sorted({manifest.version for at, manifest in pairs if name in _names(at, manifest)})
            whole = self._whole(manifests)
            back = f"; version {whole[-1]} is whole, and can be read" if whole else ""
            self.add(
                "missing" if isinstance(error, StateMissing) else "damage",
                f"{error.message} (needed by versions {', '.join(map(str, needing))})",
                f"bring the file back from a backup{back}",
            )

    def _whole(self, manifests: Manifests) -> list[int]:
        """The versions of which no file is bad, in all partitions."""
        sound = {
            f"{prefix}/{manifest.name}"
            for prefix, versions in manifests.items()
            for manifest in versions
            if self._bad.keys().isdisjoint(_names(prefix, manifest))
        }
        complete = self.state.published(self.name)
        return sorted(version for version, names in complete.items() if sound.issuperset(names))

    def _report_base(self) -> None:
        committed = self.state.checkpoint.committed
        base = base_of(self.record.begun, -1 if committed is None else committed + 1)
        if base is None or committed is None:
            return
        if layout_at(self.record.known_layouts, base) is None:
            return  # the base of a branch that has not run yet is its original's
        if base not in self.state.published(self.name):
            self.add(
                "missing",
                f"version {base}, from which the next batch starts, is not on storage in all partitions",
                "run `headrace recover <checkpoint>` on the machine that wrote it",
            )

    def _report_leftovers(self, blobs: Blobs, manifests: Manifests) -> None:
        prefix = operator_prefix(self.state.query, self.name)
        staged = blobs.list(f"{prefix}/writes/")
        if staged:
            self.add(
                "note",
                f"{len(staged)} files of a write that broke off are under {blobs.root}/{prefix}/writes",
                "delete that folder when no write is running",
            )
        pairs = ((prefix, manifest) for prefix, versions in manifests.items() for manifest in versions)
        named = {name for prefix, manifest in pairs for name in _names(prefix, manifest)}
        files = [name for prefix in manifests for name in blobs.list(f"{prefix}/segments/")]
        stray = sum(1 for name in files if parse_segment(name) is not None and name not in named)
        if stray:
            self.add(
                "note",
                f"{stray} segments are named by no version",
                "nothing to do: a batch or a compaction is writing them, or a collection deletes them",
            )


def _checksum(home: PartitionHome, name: str) -> int:
    """The checksum of a whole file that is no segment."""
    with tempfile.TemporaryDirectory(prefix="headrace-doctor-") as folder:
        copy = Path(folder) / "file"
        home.files.copy(name, copy, link=False)
        return checksum(copy)


def _names(prefix: str, manifest: Manifest) -> set[str]:
    return {blob_name(prefix, entry.name) for entry in manifest.segments}
