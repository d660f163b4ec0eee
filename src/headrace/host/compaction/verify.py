"""Verification of a compactor's output, before a host names it.

A wrong output would be lost state, so nothing of it is trusted. All bytes are read and compared with their
checksums. Rows are in order and as many as the inputs allow. A sample of key ranges is merged once more and
compared word by word. The inputs stay until a version names the output.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headrace.errors import StateCorrupt
from headrace.format.manifest import SegmentEntry
from headrace.row.run import Run
from headrace.store.append.merge import concatenated, packed
from headrace.store.base.jobs import Merge
from headrace.store.merges import MERGES
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.ranged import RangedSegment
from headrace.store.segments.reader import Segment

SAMPLES = 4
SAMPLE_ROWS = 256
_CHUNK_ROWS = 1 << 15
_BY_TIME = ("sessions", "timers")  # merges whose live rows do not follow from their sections


def verify(merge: Merge, inputs: Sequence[Segment], output: SegmentFile, entry: SegmentEntry) -> None:
    """Raises `StateCorrupt` unless `output` is what the merge makes of its inputs."""
    if (output.size, output.rows, output.file.checksum) != (entry.size, entry.rows, entry.crc):
        raise _wrong(
            output, f"it is not the file that was reported ({entry.size} bytes, {entry.rows} rows)"
        )
    for number in output.sections:
        _check_rows(output, number)
        problem = _count_problem(merge, inputs, output, number)
        if problem:
            raise _wrong(output, problem)
    if merge.name not in _BY_TIME and not _needed(merge, inputs) <= output.sections.keys():
        raise _wrong(output, "live sections are missing")


def verify_sample(merge: Merge, inputs: Sequence[Segment], output: SegmentFile, folder: Path) -> None:
    """Merges some ranges of order keys once more, in `folder`, and compares them with the output's."""
    for number in range(SAMPLES):
        source = random.choices(inputs, [segment.rows for segment in inputs])[0]
        entry = random.choice([source.sections[at] for at in sorted(source.sections)])
        span = entry.max_hash - entry.min_hash + 1
        width = max(1, span * SAMPLE_ROWS // max(1, sum(segment.rows for segment in inputs)))
        low = random.randrange(entry.min_hash, entry.max_hash + 1)
        expected = _merged(merge, inputs, low, low + width, folder / f"sample-{number}")
        if merge.name in _BY_TIME:  # one section, whose number follows from all rows of the inputs
            expected = dict(zip(output.sections, expected.values(), strict=False))
        for section in {*expected, *output.sections}:
            actual = output.scan_range(section, low, min(low + width, 1 << 64))
            if not _same(merge, expected.get(section), actual):
                raise _wrong(output, f"section {section} has other rows from {low:#x} on")


def _check_rows(output: SegmentFile, number: int) -> None:
    """Reads all rows of a section, which compares their checksums: they are in order, and all there."""
    rows, last = 0, 0
    for run in output.scan(number, _CHUNK_ROWS):
        if len(run) and (int(run.order[0]) < last or (run.order[1:] < run.order[:-1]).any()):
            raise _wrong(output, f"section {number} is not in order")
        rows, last = rows + len(run), int(run.order[-1]) if len(run) else last
    if rows != output.sections[number].rows or not rows:
        raise _wrong(output, f"section {number} has {rows} rows")


def _count_problem(merge: Merge, inputs: Sequence[Segment], output: SegmentFile, number: int) -> str | None:
    """Why the number of rows of a section is not one that the merge can give, or None."""
    rows = output.sections[number].rows
    if merge.name in _BY_TIME:
        most = sum(segment.rows for segment in inputs)
        return None if rows <= most else f"it has {rows} rows, and its inputs {most}"
    if number not in merge.sections:
        return f"section {number} is not live"
    counts = [segment.sections[number].rows for segment in inputs if number in segment.sections]
    most = sum(counts, start=0)
    exact = all(isinstance(segment, SegmentFile) for segment in inputs)  # a clipped one has estimates
    if not exact:
        return None
    least = most if merge.name == "kept" else 1 if merge.living is not None else max(counts, default=0)
    return None if least <= rows <= most else f"section {number} has {rows} rows of {least} to {most}"


def _needed(merge: Merge, inputs: Sequence[Segment]) -> set[int]:
    """The sections that must be there; of clipped inputs, and where rows are dropped, none are certain."""
    if merge.living is not None or not all(isinstance(segment, SegmentFile) for segment in inputs):
        return set()
    return set(merge.sections)


def _merged(merge: Merge, inputs: Sequence[Segment], low: int, high: int, path: Path) -> dict[int, Run]:
    """The rows of a range by section, merged here."""
    ranged = [RangedSegment(segment, low, min(high, 1 << 64)) for segment in inputs]
    filled = [segment for segment in ranged if segment.sections]
    if not filled or not MERGES[merge.name](merge, filled, path, threading.Event()):
        return {}
    shape = merge.kind.shape
    merged = SegmentFile.open(path, shape.width, shape.variable_key_words)
    try:
        return {
            number: concatenated(list(merged.scan(number, _CHUNK_ROWS)), shape)
            for number in merged.sections
        }
    finally:
        merged.close()


def _same(merge: Merge, expected: Run | None, actual: Run) -> bool:
    if expected is None or len(expected) != len(actual):
        return expected is None and len(actual) == 0
    one, other = packed(expected, merge.kind.shape), packed(actual, merge.kind.shape)
    used = int(one.heap.size) if merge.kind.shape.variable_words else 0
    return (
        np.array_equal(one.order, other.order)
        and np.array_equal(one.words, other.words)
        and np.array_equal(one.heap[:used], other.heap[:used])
    )


def _wrong(output: SegmentFile, problem: str) -> StateCorrupt:
    return StateCorrupt(
        f"the compactor's output {output.file.id} is refused: {problem}",
        hint="nothing to do: the host compacts these segments itself",
    )
