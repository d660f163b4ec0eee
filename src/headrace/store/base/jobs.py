"""Maintenance of a store in the background: rows of committed segments, written anew as staged files.

Threads: `run` works beside the batches and touches only its inputs. `take` and `replace_in` are called by
the partition, between two batches or within a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from headrace.plan.spec import OperatorSpec
from headrace.store.base.files import FileKind, Staging, of_kind
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment


def live_sections(segments: Sequence[Segment], is_live: Callable[[int], bool]) -> tuple[int, ...]:
    """The numbers of the live sections of some segments, in order."""
    return tuple(sorted({number for segment in segments for number in segment.sections if is_live(number)}))


class Taken(Enum):
    """When the output of a job becomes part of the store's files."""

    NOW = "now"
    AT_COMMIT = "at commit"  # `Job.replace_in` puts it into the next version
    NEVER = "never"  # the files are discarded


class Job(Protocol):
    """One piece of maintenance."""

    @property
    def inputs(self) -> tuple[Segment, ...]: ...

    def run(self, staging: Staging, stop: threading.Event) -> list[SegmentFile]:
        """Writes the new files. Raises, and leaves no file, once `stop` is set."""

    def take(self, written: list[SegmentFile]) -> Taken:
        """Offers finished files to the store."""

    def replace_in(
        self, segments: Sequence[Segment], written: Sequence[SegmentFile]
    ) -> list[Segment] | None:
        """`segments` with the inputs replaced; None when that is not possible any more."""


@dataclass(frozen=True)
class Merge:
    """What a compaction makes of its inputs, as data: any process that has the inputs writes the same rows.

    `name` is that of a function in `store.merges`.
    """

    name: str
    spec: OperatorSpec
    kind: FileKind
    sections: tuple[int, ...] = ()  # those that are live
    dead_through_us: int | None = None  # of rows with a time of their own
    living: tuple[int, int] | None = None  # word and bits: a row without any of the bits is dropped


# Writes the file; False: no row is live, and there is no file.
Merging = Callable[[Merge, Sequence[Segment], Path, threading.Event], bool]


@dataclass(frozen=True)
class Compaction:
    """A `Job` that merges segments of one kind, adjacent within the kind, into at most one."""

    inputs: tuple[Segment, ...]
    kind: FileKind
    write: Callable[[Path, threading.Event], bool]  # False: no row is live, and no file is written
    adopted: Callable[[], None] = lambda: None  # called when a version takes the output in
    merge: Merge | None = None  # None: it needs what is in memory

    @classmethod
    def of(cls, inputs: Sequence[Segment], merge: Merge, merging: Merging) -> Compaction:
        """The compaction that a merge describes."""
        segments = tuple(inputs)
        return cls(
            segments, merge.kind, lambda path, stop: merging(merge, segments, path, stop), merge=merge
        )

    def run(self, staging: Staging, stop: threading.Event) -> list[SegmentFile]:
        merged = staging.staged(self.kind, lambda path: self.write(path, stop))
        return [] if merged is None else [merged]

    def take(self, written: list[SegmentFile]) -> Taken:
        return Taken.AT_COMMIT

    def replace_in(
        self, segments: Sequence[Segment], written: Sequence[SegmentFile]
    ) -> list[Segment] | None:
        """None when the inputs are not neighbours any more."""
        same, inputs = of_kind(segments, self.inputs[0].kind), set(map(id, self.inputs))
        first = next((at for at, segment in enumerate(same) if segment is self.inputs[0]), len(same))
        neighbours = same[first : first + len(self.inputs)]
        if list(map(id, neighbours)) != list(map(id, self.inputs)):
            return None
        replaced: list[Segment] = []
        for segment in segments:
            if segment is self.inputs[-1]:
                replaced += written
            if id(segment) not in inputs:
                replaced.append(segment)
        self.adopted()
        return replaced
