"""Reads the state of an operator at a version from storage, for tests: no host, no Spark.

Every file of the version is opened with the checks of a host, so a version that can be read can be
recovered. State rows that equal results are read as a table (`inspect`). Any other state is opened in its
store, and read as the results that it would emit if the watermark passed all windows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.operator_record import read_operator
from headrace.checkpoint.rescale.folders import folders_of
from headrace.checkpoint.restore import restore
from headrace.clock import SystemClock
from headrace.errors import StateMissing
from headrace.format.manifest import Manifest
from headrace.format.names import Attempt, home_of, operator_prefix, parse_manifest
from headrace.inspect.forms import table_spec
from headrace.inspect.partition import open_partition
from headrace.inspect.selection import Selection
from headrace.operators.open import kinds_of, open_store
from headrace.plan.choice import adds
from headrace.plan.partitions.layouts import Layout, first_layout
from headrace.plan.spec import OperatorSpec, output_schema
from headrace.store.base.files import FileKind, Files, Sections
from headrace.store.base.share import FixedShare
from headrace.store.segments.reader import Segment

_MEMORY_BYTES = 64 << 20
PARTITIONS_MAX = 65  # of a test
_AFTER_ALL_US = 1 << 60  # later than any window of a test


@dataclass(frozen=True)
class StateAt:
    """An operator's state at one version: rows in the form of its results, and its manifests' counts."""

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
    """The state after batch `version`, over all partitions; raises the errors of a recovery."""
    with tempfile.TemporaryDirectory(prefix="state-reader-") as local:
        return _read(Locations(Path(local)).open(str(location), create=False), query, operator, version)


def _read(blobs: Blobs, query: str, operator: str, version: int) -> StateAt:
    spec = read_operator(blobs, query, operator)
    if spec is None:
        raise StateMissing(f"{blobs.root} has no operator {operator} of query {query}")
    manifests, tables = [], []
    for prefix in folders_with(blobs, query, operator, version):
        manifest = restore(blobs, prefix, version)
        assert manifest is not None
        manifests.append(manifest)
        read = _reader_of(spec)
        tables.append(read(blobs, prefix, spec, manifest))
    return StateAt(spec, pa.concat_tables(tables), tuple(manifests))


def folders_with(blobs: Blobs, query: str, operator: str, version: int) -> list[str]:
    """The folders of the partitions that have a version, by the newest start that wrote it in a layout.

    Folders of one layout cover all hash groups once. Those of another one may have a version of the same
    number, by an attempt that was never committed.
    """
    spec, prefix = read_operator(blobs, query, operator), operator_prefix(query, operator)
    assert spec is not None
    layouts = [[folder.prefix for folder in folders_of(query, operator, one)] for one in _layouts(spec)]
    newest: dict[str, Attempt] = {}
    for name in blobs.list(f"{prefix}/"):
        attempt = parse_manifest(name)
        if attempt is not None and attempt.version == version:
            newest[home_of(name)] = max(newest.get(home_of(name), attempt), attempt)
    whole = [folders for folders in layouts if all(folder in newest for folder in folders)]
    if not whole:
        return layouts[0]  # reading them raises what is missing
    return max(whole, key=lambda folders: min(newest[folder].run for folder in folders))


def _layouts(spec: OperatorSpec) -> list[Layout]:
    """The layouts that an operator may have: the first one, and one for every number of partitions."""
    later = (Layout(0, number, by_range=True) for number in range(1, PARTITIONS_MAX))
    return [*first_layout(spec.partitions), *later]


def _reader_of(spec: OperatorSpec) -> Callable[[Blobs, str, OperatorSpec, Manifest], pa.Table]:
    if spec.work.is_interactive:
        return _cell_table
    return _partition_table if _lies_as_results(spec) else _closing_table


def _lies_as_results(spec: OperatorSpec) -> bool:
    """Whether a state row equals a result: one per key, or per key and window of one slice."""
    if not spec.work.adds_up or spec.store == "rocksdb" or adds(spec):
        return False
    window = spec.window
    return window is None or (not window.session and window.every_us == window.width_us)


def _closing_table(blobs: Blobs, prefix: str, spec: OperatorSpec, manifest: Manifest) -> pa.Table:
    """The results of the store when all its windows close."""
    home = PartitionHome.of(blobs, prefix, SystemClock())
    store = open_store(
        spec=spec,
        budget=FixedShare(_MEMORY_BYTES),
        files=_NoFiles(),
        segments=home.open_segments(manifest, kinds_of(spec, manifest.store)),
        watermark_us=manifest.closed_through_us,
        known_keys=manifest.keys,
        recorded=manifest.store,
    )
    store.gather(_AFTER_ALL_US)  # the returned write is not run
    return pa.Table.from_batches(store.results(_AFTER_ALL_US), output_schema(spec))


class _NoFiles(Files):
    def write(self, kind: FileKind, sections: Sections) -> Segment:
        raise AssertionError("state that is only read is never written")


def _cell_table(blobs: Blobs, prefix: str, spec: OperatorSpec, manifest: Manifest) -> pa.Table:
    """Keys, cell number and value of each cell of a processor."""
    names = [*(key.name for key in table_spec(spec).keys), "a0"]
    with open_partition(blobs, prefix, spec, manifest) as state:
        batches = [batch.select(names) for batch in state.batches(Selection(spec))]
    schema = output_schema(table_spec(spec))
    return pa.Table.from_batches(batches, pa.schema([schema.field(name) for name in names]))


def _partition_table(blobs: Blobs, prefix: str, spec: OperatorSpec, manifest: Manifest) -> pa.Table:
    schema = output_schema(spec)
    with open_partition(blobs, prefix, spec, manifest) as state:
        batches = [batch.select(schema.names) for batch in state.batches(Selection(spec))]
    return pa.Table.from_batches(batches, schema)
