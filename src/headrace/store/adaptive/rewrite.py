"""Rewrites kept rows, from slices ordered by hash to buckets ordered by event time, in bounded chunks.

Reads committed segments only, so it may run beside the batches. Memory: one file's worth of rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from headrace.errors import TryAgain
from headrace.plan.spec import OperatorSpec, Window
from headrace.row.chunks import REWRITE_ROWS
from headrace.row.run import Run
from headrace.store.append.bucket_store import kept_kind
from headrace.store.append.merge import by_range, concatenated
from headrace.store.append.range import ByTime
from headrace.store.base.files import FileKind, Staging
from headrace.store.rows.kept_layout import KeptLayout
from headrace.store.rows.slices import is_closed
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment

FILE_BYTES = 8 << 20


def by_time_files(
    spec: OperatorSpec,
    segments: Sequence[Segment],
    watermark_us: int | None,
    staging: Staging,
    stop: threading.Event,
    file_bytes: int = FILE_BYTES,
) -> list[SegmentFile]:
    """The live rows of `segments` as new segments of the range layout; leaves no file when it raises."""
    order, written = ByTime(spec), list[SegmentFile]()
    kind, waiting, size = kept_kind(order.layout), dict[int, list[Run]](), 0
    try:
        for bucket, run in _rows(spec, order, segments, watermark_us):
            if stop.is_set():
                raise TryAgain("the move was stopped", hint="it starts again after the next commit")
            waiting.setdefault(bucket, []).append(run)
            size += run.nbytes
            if size >= file_bytes:
                written += _file(staging, kind, order, waiting)
                waiting, size = {}, 0
        if waiting:
            written += _file(staging, kind, order, waiting)
    except BaseException:
        staging.discard(written)
        raise
    return written


def _rows(
    spec: OperatorSpec, order: ByTime, segments: Sequence[Segment], watermark_us: int | None
) -> Iterator[tuple[int, Run]]:
    """The live rows in the new layout, bucket after bucket; `hashes` are the hashes."""
    assert spec.window is not None
    layout = KeptLayout(spec)
    sources: dict[int, list[tuple[Segment, int]]] = {}
    for segment in segments:
        for section in segment.sections:
            if not is_closed(section, spec.window, watermark_us):
                sources.setdefault(_bucket(section, spec.window), []).append((segment, section))
    for bucket in sorted(sources):
        for run in by_range(sources[bucket], layout, REWRITE_ROWS):
            yield bucket, _hashed(order.layout, run)


def _bucket(section: int, window: Window) -> int:
    return section - (section - window.offset_us) % window.every_us


def _hashed(layout: KeptLayout, run: Run) -> Run:
    """The same rows with their hash as the last word."""
    words = np.empty((len(run), layout.width), np.uint64)
    words[:, : layout.hash_word] = run.words
    words[:, layout.hash_word] = run.order
    return Run(run.order, words, run.heap)


def _file(
    staging: Staging, kind: FileKind, order: ByTime, waiting: dict[int, list[Run]]
) -> list[SegmentFile]:
    shape = kind.shape
    sections = [
        (bucket, [order.arranged(concatenated(waiting[bucket], order.layout))])
        for bucket in sorted(waiting)
    ]

    def write(path: Path) -> bool:
        return write_segment(path, shape.width, sections, shape.variable_words).rows > 0

    segment = staging.staged(kind, write)
    return [] if segment is None else [segment]
