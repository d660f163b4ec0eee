"""Reads the state of an operator at a version from storage, for tests: no host, no Spark.

Every file that the version names is opened through the same checks that a host makes, so a version that
can be read here can be recovered. State that lies as its results look is read row by row; any other is
opened in its store, and read as what the store would emit if the watermark passed all its windows.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.operator_record import read_operator
from headrace.checkpoint.publish import ManifestPublisher
from headrace.checkpoint.restore import restore
from headrace.clock import SystemClock
from headrace.errors import StateMissing
from headrace.format.manifest import Manifest
from headrace.format.names import partition_prefix
from headrace.host.home import PartitionHome
from headrace.spec import OperatorSpec, output_schema
from headrace.store.arrow import results_of
from headrace.store.budget import MemoryBudget
from headrace.store.choose import adds
from headrace.store.contract import FileKind, Sections
from headrace.store.layout import RowLayout
from headrace.store.merge import merge
from headrace.store.open import kinds_of, open_store
from headrace.store.segment import Segment
from headrace.store.slices import is_closed

_CHUNK_ROWS = 1 << 14
_MEMORY_BYTES = 64 << 20
_AFTER_ALL_US = 1 << 60  # later than any window of a test


@dataclass(frozen=True)
class StateAt:
    """An operator's state at one version: rows as its results look, and what its manifests count."""

    spec: OperatorSpec
    table: pa.Table
    manifests: tuple[Manifest, ...]

    @property
    def late_rows(self) -> int:
        return sum(manifest.late_rows_total for manifest in self.manifests)

    def rows(self) -> list[tuple[Any, ...]]:
        """Plain values in the order of the columns."""
        return [tuple(row.values()) for row in self.table.to_pylist()]


def read_state(location: Path | str, query: str, operator: str, version: int) -> StateAt:
    """The state after batch `version`, over all partitions; raises what a recovery would raise."""
    with tempfile.TemporaryDirectory(prefix="state-reader-") as local:
        return _read(Locations(Path(local)).open(str(location), create=False), query, operator, version)


def _read(blobs: Blobs, query: str, operator: str, version: int) -> StateAt:
    spec = read_operator(blobs, query, operator)
    if spec is None:
        raise StateMissing(f"{blobs.root} has no operator {operator} of query {query}")
    manifests, tables = [], []
    for partition in range(spec.partitions):
        prefix = partition_prefix(query, operator, partition)
        manifest = restore(blobs, prefix, version)
        assert manifest is not None
        manifests.append(manifest)
        read = _partition_table if _lies_as_results(spec) else _closing_table
        tables.append(read(blobs, prefix, spec, manifest))
    return StateAt(spec, pa.concat_tables(tables), tuple(manifests))


def _lies_as_results(spec: OperatorSpec) -> bool:
    """Whether a state row is a result: one of a key, or of a key and a window of one slice."""
    if spec.keeps or spec.store == "rocksdb" or adds(spec):
        return False
    window = spec.window
    return window is None or (not window.session and window.every_us == window.width_us)


def _closing_table(blobs: Blobs, prefix: str, spec: OperatorSpec, manifest: Manifest) -> pa.Table:
    """What the store emits when all its windows close."""
    publisher = ManifestPublisher(blobs, prefix, SystemClock())
    home = PartitionHome(blobs, prefix, publisher, itertools.count())
    store = open_store(
        spec=spec,
        budget=MemoryBudget(_MEMORY_BYTES),
        seal=_seals_nothing,
        segments=home.open_segments(manifest, kinds_of(spec, manifest.store)),
        watermark_us=manifest.closed_through_us,
        known_keys=manifest.keys,
        said=manifest.store,
    )
    store.gather(_AFTER_ALL_US)  # what it would write is not written
    return pa.Table.from_batches(store.results(_AFTER_ALL_US), output_schema(spec))


def _seals_nothing(kind: FileKind, sections: Sections) -> Segment:
    raise AssertionError("state that is only read is never written")


def _partition_table(blobs: Blobs, prefix: str, spec: OperatorSpec, manifest: Manifest) -> pa.Table:
    layout = RowLayout(spec)
    paths = [blobs.local_path(f"{prefix}/{entry.name}") or Path() for entry in manifest.segments]
    segments = [
        Segment.open(path, layout.width, layout.variable_key_words, checksum=entry.crc)
        for path, entry in zip(paths, manifest.segments, strict=True)
    ]
    try:
        slices = {slice_us for segment in segments for slice_us in segment.sections}
        live = sorted(s for s in slices if not is_closed(s, spec.window, manifest.closed_through_us))
        found = [batch for slice_us in live for batch in _slice_batches(layout, segments, slice_us)]
    finally:
        for segment in segments:
            segment.close()
    return pa.Table.from_batches(found, output_schema(spec))


def _slice_batches(layout: RowLayout, segments: list[Segment], slice_us: int) -> list[pa.RecordBatch]:
    newest_first = [(segment, slice_us) for segment in reversed(segments)]
    window = slice_us if layout.spec.window else None
    runs = merge(newest_first, layout, _CHUNK_ROWS)
    return [batch for run in runs for batch in results_of(layout, run, window, _CHUNK_ROWS)]
