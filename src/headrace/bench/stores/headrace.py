"""A store of Headrace on its own: batches in, results out, every batch committed to segments on disk.

It does what the state host does for a partition, without Spark, wire and manifests. Segments are written in
one thread while results are read in another, and a third compacts and removes files that nobody needs.
Threads: one caller.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from headrace.bench.stores.events import counted_results
from headrace.kernels.warm import warm
from headrace.operators.open import open_store
from headrace.plan.spec import OperatorSpec
from headrace.store.base.budget import MemoryBudget
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files, Sections
from headrace.store.base.jobs import Job
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment

APPLY_ROWS = 1 << 16


class Folder(Files):
    """Segments of one folder (`Files` and `Staging`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count()
        self.written_bytes = 0

    def write(self, kind: FileKind, sections: Sections) -> SegmentFile:
        path, shape = self._new(), kind.shape
        self.written_bytes += write_segment(
            path, shape.width, sections, shape.variable_words, sync=False
        ).size
        return self._open(path, kind)

    def staged(self, kind: FileKind, write: Callable[[Path], bool]) -> SegmentFile | None:
        path = self._new()
        return self._open(path, kind) if write(path) else None

    def discard(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            segment.close()
            os.unlink(segment.file.id)

    def _open(self, path: Path, kind: FileKind) -> SegmentFile:
        shape = kind.shape
        return SegmentFile.open(path, shape.width, shape.variable_key_words, kind=kind.name)

    def _new(self) -> Path:
        return self._path / f"{next(self._numbers)}.segment"


class StoreDriver:
    """One store over files in `folder`."""

    def __init__(self, spec: OperatorSpec, folder: Path, memory_bytes: int) -> None:
        warm()  # as the host does: no batch waits for a kernel
        self._folder = Folder(folder)
        self._store: Store = open_store(spec, MemoryBudget(memory_bytes).join(), self._folder, [], None, 0)
        self._flusher, self._upkeep = ThreadPoolExecutor(max_workers=1), ThreadPoolExecutor(max_workers=1)
        self._stop = threading.Event()
        self._job: Job | None = None
        self._written: Future[list[SegmentFile]] | None = None
        self._dead: set[str] = set()  # removed after the next batch, when nobody has them open

    @property
    def written_bytes(self) -> int:
        return self._folder.written_bytes

    def batch(self, rows: pa.RecordBatch, watermark_us: int | None) -> int:
        """One epoch; how many result rows it gave."""
        for start in range(0, rows.num_rows, APPLY_ROWS):
            self._store.apply(rows.slice(start, APPLY_ROWS))
        flushing = self._flusher.submit(self._store.gather(watermark_us))
        given = 0
        for batch in self._store.results(watermark_us):
            given += counted_results(self._store.spec.name, batch).num_rows
        self._settle(flushing.result(), watermark_us)
        return given

    def close(self) -> None:
        self._stop.set()
        self._flusher.shutdown(wait=True)
        self._upkeep.shutdown(wait=True)

    def _settle(self, written: list[Segment], watermark_us: int | None) -> None:
        before = self._store.segments
        segments = [*self._maintained(before), *written]
        live = [segment for segment in segments if self._store.is_live(segment, watermark_us)]
        self._store.settle(live, watermark_us)
        named = {id(segment) for segment in live}
        self._upkeep.submit(_remove, self._dead)
        self._dead = {segment.file.id for segment in (*before, *segments) if id(segment) not in named}
        self._maintain()

    def _maintained(self, segments: list[Segment]) -> list[Segment]:
        """The segments with a finished job taken in."""
        if self._job is None or self._written is None or not self._written.done():
            return segments
        job, written, self._job = self._job, self._written.result(), None
        replaced = job.replace_in(segments, written)
        if replaced is None:
            self._folder.discard(written)
            return segments
        return replaced

    def _maintain(self) -> None:
        if self._job is not None:
            return
        self._job = self._store.maintenance()
        if self._job is not None:
            self._written = self._upkeep.submit(self._job.run, self._folder, self._stop)


def _remove(paths: set[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
