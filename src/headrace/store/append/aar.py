"""The AAR store (append, aligned read): rows of fixed windows in files per slice, ordered by hash.

A window that closes is read in bounded chunks: ranges of the hash over all its slices, so every chunk holds
whole groups, and no index of keys is ever needed. A window that is one group is read file after file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.kernels.core.order import by_hash
from headrace.plan.spec import OperatorSpec
from headrace.row.arrays import Flags
from headrace.row.run import Run
from headrace.store.append.kept_store import KeptStore, Reading
from headrace.store.append.merge import concatenated, range_parts
from headrace.store.append.read_ahead import read_ahead
from headrace.store.base.files import Files
from headrace.store.base.share import Share
from headrace.store.rows.groups import Computations, is_one_group
from headrace.store.rows.kept_layout import KeptLayout, ordered, subset
from headrace.store.segments.reader import Segment


class ByHash:
    """Slices ordered by hash; an `Order`."""

    def __init__(self, spec: OperatorSpec) -> None:
        assert spec.window is not None
        self.layout = KeptLayout(spec)
        self.bucket_us = spec.window.slice_us

    def arranged(self, run: Run) -> Run:
        return ordered(run)

    def chunks(self, reading: Reading) -> Iterator[tuple[Run, Flags | None]]:
        if is_one_group(self.layout.spec) and not reading.changed_only:
            pieces = _pieces(reading)
            for run in read_ahead(pieces) if reading.from_disk else pieces:
                yield run, None
            return
        ranges = range_parts(reading.sources, self.layout, reading.chunk_rows)
        for parts in read_ahead(ranges) if reading.from_disk else ranges:
            if reading.changed_only:
                old, new = parts[: len(reading.old)], parts[len(reading.old) :]
                if any(map(len, new)):
                    yield changed(self.layout, old, new)
                continue
            run = concatenated(parts, self.layout)
            parts.clear()  # the reader may be slow, and a window of one group is large
            if len(run):
                yield ordered(run), None


def _pieces(reading: Reading) -> Iterator[Run]:
    """All rows, source after source."""
    for source in reading.sources:
        if not isinstance(source, Run):
            yield from source[0].scan(source[1], reading.chunk_rows)
            continue
        for start in range(0, len(source), reading.chunk_rows):
            cut = slice(start, start + reading.chunk_rows)
            yield Run(source.order[cut], source.words[cut], source.heap)


def changed(layout: KeptLayout, old: list[Run], new: list[Run]) -> tuple[Run, Flags]:
    """Whole groups of the hashes that new rows have, ordered by hash, and which rows are new."""
    late = concatenated(new, layout)
    hashes = np.unique(late.order)
    kept = [subset(layout, run, np.isin(run.order, hashes)) for run in old]
    run = concatenated([*kept, late], layout)
    fresh = np.zeros(len(run), np.bool_)
    fresh[len(run) - len(late) :] = True
    order = by_hash(run.order)
    return Run(run.order[order], run.words[order], run.heap), fresh[order]


def open_aar(
    spec: OperatorSpec,
    share: Share,
    files: Files,
    segments: list[Segment],
    watermark_us: int | None,
    computations: Computations,
) -> KeptStore:
    """The store over the segments of one version."""
    place = (spec, share, files, segments, watermark_us)
    return KeptStore(*place, order=ByHash(spec), computation=computations)
