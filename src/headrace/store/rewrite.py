"""Writes kept rows of slices ordered by hash anew as buckets ordered by event time, in bounded chunks.

Reads committed segments only, so it may run beside the batches. Memory: one file's worth of rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from headrace.errors import TryAgain
from headrace.spec import OperatorSpec, Window
from headrace.store.contract import FileKind
from headrace.store.kept import KeptLayout
from headrace.store.kept_merge import by_range, concatenated
from headrace.store.kept_store import kept_kind
from headrace.store.range import ByTime
from headrace.store.run import Run
from headrace.store.seal import write_segment
from headrace.store.segment import Segment
from headrace.store.slices import is_closed

FILE_BYTES = 8 << 20
CHUNK_ROWS = 1 << 15


def by_time_files(
    spec: OperatorSpec,
    segments: Sequence[Segment],
    watermark_us: int | None,
    stage: Callable[[], Path],
    stop: threading.Event,
    file_bytes: int = FILE_BYTES,
) -> list[Segment]:
    """The live rows of `segments` as new segments of the range layout; leaves no file when it raises."""
    order, written = ByTime(spec), list[Segment]()
    kind, waiting, size = kept_kind(order.layout), dict[int, list[Run]](), 0
    try:
        for bucket, run in _rows(spec, order, segments, watermark_us):
            if stop.is_set():
                raise TryAgain("the move was stopped", hint="it starts again after the next commit")
            waiting.setdefault(bucket, []).append(run)
            size += run.nbytes
            if size >= file_bytes:
                written.append(_file(stage(), kind, order, waiting))
                waiting, size = {}, 0
        if waiting:
            written.append(_file(stage(), kind, order, waiting))
    except BaseException:
        discard(written)
        raise
    return written


def discard(segments: Sequence[Segment]) -> None:
    """Remove staged files; they have no name in any version, so nothing can need them."""
    for segment in segments:
        segment.close()
        Path(segment.path).unlink(missing_ok=True)


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
        for run in by_range(sources[bucket], layout, CHUNK_ROWS):
            yield bucket, _hashed(order.layout, run)


def _bucket(section: int, window: Window) -> int:
    return section - (section - window.offset_us) % window.every_us


def _hashed(layout: KeptLayout, run: Run) -> Run:
    """The same rows with their hash as the last word."""
    words = np.empty((len(run), layout.width), np.uint64)
    words[:, : layout.hash_word] = run.words
    words[:, layout.hash_word] = run.hashes
    return Run(run.hashes, words, run.heap)


def _file(path: Path, kind: FileKind, order: ByTime, waiting: dict[int, list[Run]]) -> Segment:
    shape = kind.shape
    sections = [
        (bucket, [order.arranged(concatenated(waiting[bucket], order.layout))])
        for bucket in sorted(waiting)
    ]
    write_segment(path, shape.width, sections, shape.variable_words)
    return Segment.open(path, shape.width, shape.variable_key_words, kind=kind.name)
