"""A store of Headrace on its own: batches in, results out, every batch committed to segments on disk.

It does what the state host does for a partition, without Spark, wire and manifests: segments are written in
one thread while results are read in another, and a third compacts and removes files that nobody needs.
Threads: one caller.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from headrace.bench.stores_events import wanted
from headrace.host.upkeep import Compacted
from headrace.kernels.warm import warm
from headrace.spec import OperatorSpec
from headrace.store.budget import MemoryBudget
from headrace.store.contract import Compaction, FileKind, Sections, Store
from headrace.store.open import open_store
from headrace.store.seal import write_segment
from headrace.store.segment import Segment

APPLY_ROWS = 1 << 16


class StoreDriver:
    """One store over files in `folder`."""

    def __init__(self, spec: OperatorSpec, folder: Path, memory_bytes: int) -> None:
        warm()  # as the host does: no batch waits for a kernel
        self._folder = folder
        self._numbers = itertools.count()
        self._store: Store = open_store(spec, MemoryBudget(memory_bytes), self._seal, [], None, 0)
        self._sealer, self._upkeep = ThreadPoolExecutor(max_workers=1), ThreadPoolExecutor(max_workers=1)
        self._stop = threading.Event()
        self._compacting: Future[Compacted] | None = None
        self._dead: set[str] = set()  # removed after the next batch, when nobody has them open
        self.written_bytes = 0

    def batch(self, rows: pa.RecordBatch, watermark_us: int | None) -> int:
        """One epoch; how many result rows it gave."""
        for start in range(0, rows.num_rows, APPLY_ROWS):
            self._store.apply(rows.slice(start, APPLY_ROWS))
        sealing = self._sealer.submit(self._store.gather(watermark_us))
        given = 0
        for batch in self._store.results(watermark_us):
            given += wanted(self._store.spec.name, batch).num_rows
        self._settle(sealing.result(), watermark_us)
        return given

    def close(self) -> None:
        self._stop.set()
        self._sealer.shutdown(wait=True)
        self._upkeep.shutdown(wait=True)

    def _settle(self, sealed: list[Segment], watermark_us: int | None) -> None:
        before = self._store.segments
        kept = [*self._compacted(before), *sealed]
        live = [segment for segment in kept if self._store.is_live(segment, watermark_us)]
        self._store.settle(live, watermark_us)
        named = {id(segment) for segment in live}
        self._upkeep.submit(_remove, self._dead)
        self._dead = {segment.path for segment in (*before, *kept) if id(segment) not in named}
        self._compact()

    def _compacted(self, segments: list[Segment]) -> list[Segment]:
        """The segments with a finished compaction taken in."""
        if self._compacting is None or not self._compacting.done():
            return segments
        compacted, self._compacting = self._compacting.result(), None
        replaced = compacted.replace_in(segments)
        if replaced is None:
            compacted.discard()
            return segments
        return replaced

    def _compact(self) -> None:
        if self._compacting is not None:
            return
        compaction = self._store.compaction()
        if compaction is not None:
            self._compacting = self._upkeep.submit(self._write, compaction)

    def _write(self, compaction: Compaction) -> Compacted:
        path = self._path()
        if not compaction.write(path, self._stop):
            return Compacted(compaction.inputs, None)
        return Compacted(compaction.inputs, self._open(path, compaction.kind))

    def _seal(self, kind: FileKind, sections: Sections) -> Segment:
        path = self._path()
        shape = kind.shape
        self.written_bytes += write_segment(
            path, shape.width, sections, shape.variable_words, sync=False
        ).size
        return self._open(path, kind)

    def _open(self, path: Path, kind: FileKind) -> Segment:
        shape = kind.shape
        return Segment.open(path, shape.width, shape.variable_key_words, kind=kind.name)

    def _path(self) -> Path:
        return self._folder / f"{next(self._numbers)}.segment"


def _remove(paths: set[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
