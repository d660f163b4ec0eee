"""Compactors that are wrong, each in its own way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headrace.clock import SYSTEM_CLOCK
from headrace.compactor.work import CompactionWork
from headrace.errors import StateCorrupt
from headrace.format.manifest import SegmentEntry
from headrace.format.names import blob_name
from headrace.wire.compaction import CompactionRequest

Spoil = Callable[["Wrong", CompactionRequest], SegmentEntry | None]


class Wrong(CompactionWork):
    """A compactor whose work is spoilt after, or in place of, the real one."""

    def __init__(self, folder: Path, spoil: Spoil) -> None:
        super().__init__(folder / "compactor")
        self.spoil, self.requests = spoil, 0

    def run(self, request: CompactionRequest, stop: threading.Event) -> SegmentEntry | None:
        self.requests += 1
        return self.spoil(self, request)

    def real(self, request: CompactionRequest) -> SegmentEntry | None:
        return super().run(request, threading.Event())


def file_of(request: CompactionRequest) -> Path:
    return Path(request.location) / blob_name(request.prefix, request.output)


def rewrite(request: CompactionRequest, change: Callable[[bytes], bytes]) -> None:
    path = file_of(request)
    data = change(path.read_bytes())
    path.unlink()
    path.write_bytes(data)


def truncated(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    entry = work.real(request)
    rewrite(request, lambda data: data[: len(data) // 2])
    return entry


def flipped(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    entry = work.real(request)
    rewrite(request, lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:])
    return entry


def unwritten(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    entry = work.real(request)
    file_of(request).unlink()
    return entry


def without_the_newest(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    return work.real(replace(request, inputs=request.inputs[:-1]))


def in_the_wrong_order(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    return work.real(replace(request, inputs=request.inputs[::-1]))


def by_the_wrong_merge(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    return work.real(replace(request, merge="kept"))


def under_another_name(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    entry = work.real(request)
    assert entry is not None
    return replace(entry, name=request.inputs[0].name)


def with_other_counts(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    entry = work.real(request)
    assert entry is not None
    return replace(entry, rows=entry.rows + 1)


def nothing(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    return None


def late(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    SYSTEM_CLOCK.sleep_ms(1500)
    return work.real(request)


def failing(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    raise ValueError("a failure")


def damaged_inputs(work: Wrong, request: CompactionRequest) -> SegmentEntry | None:
    raise StateCorrupt("a segment fails its checksum")


SPOILT = [
    truncated, flipped, unwritten, without_the_newest, in_the_wrong_order, by_the_wrong_merge,
    under_another_name, with_other_counts, nothing, failing, damaged_inputs,
]  # fmt: skip
