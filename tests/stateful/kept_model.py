"""What a store of kept rows must do, in plain Python over a list of rows; and a store on local files."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.operators.open import kinds_of, open_store
from headrace.plan.spec import (
    WINDOW_START,
    Accumulator,
    Field,
    Holistic,
    HolisticResult,
    OperatorSpec,
    Window,
    input_schema,
)
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Sections
from headrace.store.base.jobs import Job
from headrace.store.base.share import FixedShare
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.testing.contracts.store_lab import FlushedBy

Row = tuple[int, int, int | None]  # key, time, value
Groups = dict[tuple[int, int], tuple[Any, ...]]  # (window start, key) to what comes out
KEYS = 8


def spec_of(window: Window, store: Any) -> OperatorSpec:
    return OperatorSpec(
        name="kept",
        keys=(Field("k0", "string", "key"),),
        inputs=(Field("v0", "int64", "value"), Field("v1", "double", "value")),
        work=Holistic(
            (HolisticResult("list", "v0", "int64"), HolisticResult("percentile", "v1", "double", (0.5,))),
            (Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64")),
        ),
        window=window,
        emit="final",
        timed=True,
        delays_ms=(0,),
        partitions=1,
        store=store,
    )


def batch_of(spec: OperatorSpec, rows: list[Row]) -> pa.RecordBatch:
    """Keys 2k and 2k + 1 have the same hash, so that only their bytes tell them apart."""
    keys, times, values = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [
        pa.array([(key // 2 - 1) << 60 for key in keys], pa.int64()),
        pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([f"key-{key}" for key in keys], pa.string()),
        pa.array(values, pa.int64()),
        pa.array(values, pa.int64()).cast(pa.float64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=input_schema(spec))


@dataclass
class Model:
    """Rows in a list; every window is worked out anew."""

    window: Window
    rows: list[Row] = field(default_factory=list)
    fresh: list[Row] = field(default_factory=list)
    watermark: int | None = None
    late: int = 0

    def starts(self, time: int) -> Iterator[int]:
        """The windows over a time."""
        slide, width = self.window.every_us, self.window.width_us
        start = time - (time - self.window.offset_us) % slide
        while start + width > time:
            yield start
            start -= slide

    def apply(self, rows: list[Row]) -> None:
        for row in rows:
            last = max(self.starts(row[1]))
            closes = last + self.window.width_us + self.window.lateness_us
            if self.watermark is not None and closes <= self.watermark:
                self.late += 1
            else:
                self.fresh.append(row)

    def results(self, watermark: int | None) -> Groups:
        groups: dict[tuple[int, int], list[Row]] = {}
        for row in (*self.rows, *self.fresh):
            for start in self.starts(row[1]):
                groups.setdefault((start, row[0]), []).append(row)
        touched = {(start, row[0]) for row in self.fresh for start in self.starts(row[1])}
        return {
            group: summary(rows)
            for group, rows in groups.items()
            if self.is_due(group[0], group in touched, watermark)
        }

    def is_due(self, start: int, touched: bool, watermark: int | None) -> bool:
        end, before = start + self.window.width_us, self.watermark
        if before is not None and end <= before:
            return touched and before < end + self.window.lateness_us
        return watermark is not None and end <= watermark

    def settle(self, watermark: int | None) -> None:
        self.rows, self.fresh, self.watermark = [*self.rows, *self.fresh], [], watermark

    def crash(self) -> None:
        self.fresh = []


def summary(rows: list[Row]) -> tuple[Any, ...]:
    pairs = sorted((time, value) for _, time, value in rows if value is not None)
    values = [value for _, value in pairs]
    median = float(np.median(values)) if values else None
    return len(rows), sum(values) if values else None, values, median


class Files:
    """A store over files of one folder, and the committed version of it."""

    def __init__(self, folder: Path, spec: OperatorSpec, share_bytes: int) -> None:
        self.folder, self.spec = folder, spec
        self.share = FixedShare(share_bytes)
        self.names = itertools.count()
        self.committed: list[str] = []
        self.watermark: int | None = None
        self.compacted: tuple[Job, list[SegmentFile]] | None = None
        self.store = self.opened()

    def flush(self, kind: FileKind, sections: Sections) -> Segment:
        path = self.folder / f"{next(self.names)}.segment"
        write_segment(path, kind.shape.width, sections, kind.shape.variable_words, sync=False)
        return self.open(str(path), kind)

    def open(self, path: str, kind: FileKind) -> SegmentFile:
        return SegmentFile.open(path, kind.shape.width, kind.shape.variable_key_words, kind=kind.name)

    def opened(self) -> Store:
        (kind,) = kinds_of(self.spec)
        segments = [self.open(path, kind) for path in self.committed]
        return open_store(self.spec, self.share, FlushedBy(self.flush), segments, self.watermark, 0)

    def results(self, watermark: int | None) -> Groups:
        """Read and commit the epoch, as a transaction does."""
        store = self.store
        write = store.gather(watermark)
        groups: Groups = {}
        for batch in store.results(watermark):
            for row in batch.to_pylist():
                start = round(row[WINDOW_START].timestamp() * 1_000_000)
                group = start, int(row["k0"].removeprefix("key-"))
                assert group not in groups, f"{group} came twice"
                groups[group] = row["a0"], row["a1"], row["h0"], row["h1"]
        settled = list(store.segments)
        if self.compacted is not None:
            job, written = self.compacted
            settled = job.replace_in(settled, written) or settled
            self.compacted = None
        segments = [s for s in (*settled, *write()) if store.is_live(s, watermark)]
        self.committed, self.watermark = [segment.file.id for segment in segments], watermark
        store.settle(segments, watermark)
        return groups

    def compact(self) -> bool:
        job = self.store.maintenance()
        if job is None:
            return False
        self.compacted = job, job.run(self, threading.Event())
        return True

    def staged(self, kind: FileKind, write: Callable[[Path], bool]) -> SegmentFile | None:
        path = self.folder / f"{next(self.names)}.compacted"
        return self.open(str(path), kind) if write(path) else None

    def discard(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            Path(segment.file.id).unlink()

    def crash(self) -> None:
        self.compacted = None
        self.store = self.opened()
