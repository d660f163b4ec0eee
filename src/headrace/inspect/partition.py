"""One partition of one version, opened for reading without a host.

Invariant: all files of the version are open once `open_partition` returns, so a collector that deletes them
meanwhile does not disturb the reader. Threads: one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa

from headrace.blob.base import Blobs
from headrace.checkpoint.home import PartitionHome
from headrace.clock import SystemClock
from headrace.format.manifest import Manifest
from headrace.inspect.forms import rows_in, table_spec
from headrace.inspect.rows import Between, Hashes, StateRows
from headrace.inspect.selection import Selection
from headrace.operators.open import kinds_of
from headrace.plan.spec import OperatorSpec
from headrace.row.chunks import SCAN_ROWS
from headrace.store.segments.merge import Source, cut_ranges, ranged, span_of
from headrace.store.segments.reader import Segment

ROCKSDB_BYTES = 16 << 20


@dataclass(frozen=True)
class PartitionState:
    """The state rows of one partition; close it after use."""

    spec: OperatorSpec
    rows: StateRows
    files: Sequence[Segment]
    database: object = None

    def batches(self, selection: Selection, chunk_rows: int = SCAN_ROWS) -> Iterator[pa.RecordBatch]:
        """The selected rows as batches of wire columns, in bounded memory."""
        hashes = selection.hashes
        for section in self.rows.sections():
            if not selection.may_hold(self.spec, section, by_time=self.rows.by_time):
                continue
            if hashes is not None and not self.rows.by_time:
                yield from selection.kept(self.rows.read(section, Hashes(hashes)))
                continue
            for low, high in ranges([self.rows.sources(section)], chunk_rows):
                yield from selection.kept(self.rows.read(section, Between(low, high)))
            self.release(section)

    def release(self, section: int) -> None:
        """Drop the indexes of a section; a reader passes over each section once."""
        for source in self.rows.sources(section):
            if isinstance(source, tuple):
                source[0].release(source[1])

    def close(self) -> None:
        for file in self.files:
            file.close()
        if self.database is not None:
            self.database.close()  # type: ignore[attr-defined]

    def __enter__(self) -> PartitionState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ranges(groups: Sequence[Sequence[Source]], chunk_rows: int) -> list[tuple[int, int]]:
    """Ranges of order keys that hold about `chunk_rows` rows of all sources together, in order."""
    parts, _ = ranged([source for group in groups for source in group], np.empty(0, np.int64))
    if not parts:
        return []
    return list(cut_ranges(parts, *span_of(parts), chunk_rows))


def open_partition(blobs: Blobs, prefix: str, spec: OperatorSpec, manifest: Manifest) -> PartitionState:
    """The partition at a version; raises what a recovery from it would raise."""
    home = PartitionHome.of(blobs, prefix, SystemClock())
    kinds = kinds_of(spec, manifest.store)
    files = home.open_segments(manifest, kinds)
    if spec.store != "rocksdb":
        return PartitionState(
            table_spec(spec), rows_in(spec, manifest.store, files, manifest.closed_through_us), files
        )
    from headrace.store.rocksdb.store import opened_views  # who reads no such state need not load RocksDB

    database, views = opened_views(files, spec, kinds, ROCKSDB_BYTES)
    rows = rows_in(spec, manifest.store, views, manifest.closed_through_us)
    return PartitionState(table_spec(spec), rows, files, database)
