"""What the host asks of a store: the state of one partition of one operator.

    rows ─▶ apply* ─▶ gather ─▶ results ─▶ settle      (one epoch)

A store that is dropped at any moment, and opened again over the segments of the last `settle`, must go on
as if the epochs since had never been. Nothing that `gather` wrote counts before `settle`.

Threads: one transaction at a time calls in. The thunk that `gather` returns runs in another thread while
`results` is read; a `Compaction` runs in yet another at any time and reads committed segments only. Of all
else, `memory_bytes` alone may be asked for meanwhile: arrays move when a table grows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa

from headrace.spec import OperatorSpec
from headrace.store.merge import Shape
from headrace.store.run import Run
from headrace.store.segment import Segment

Sections = Sequence[tuple[int, Iterable[Run]]]  # by number, each an ordered sequence of ordered runs


@dataclass(frozen=True)
class FileKind:
    """One kind of segment that a store writes; the name is in the manifest's entries."""

    name: str
    shape: Shape
    appends: bool = False  # every row counts, equal keys included; else the newest row of a key does


Write = Callable[[], list[Segment]]


class Seal(Protocol):
    """Writes a segment of the running epoch and opens it."""

    def __call__(self, kind: FileKind, sections: Sections) -> Segment: ...


@runtime_checkable
class PlacingSeal(Seal, Protocol):
    """One that also takes a finished file that is not a segment into the version."""

    def place(self, path: Path, label: str) -> Segment:
        """Move the file at `path` to storage; the store finds it again by `label`."""


@dataclass(frozen=True)
class Gathered:
    """What an epoch changed, as a `Write` that also says its rows, so that they can be logged unsealed.

    Called once, it seals `sections` in their order and returns the epoch's segments, `spilled` first. A
    plain function is a `Write` too; its epochs are sealed before they are logged.
    """

    seal: Seal
    sections: tuple[tuple[FileKind, Sections], ...]  # one segment each, none empty
    spilled: tuple[Segment, ...] = ()

    def __call__(self) -> list[Segment]:
        return [*self.spilled, *(self.seal(kind, sections) for kind, sections in self.sections)]


@dataclass(frozen=True)
class Compaction:
    """Segments of one kind, adjacent within the kind, that one new segment can stand for."""

    inputs: tuple[Segment, ...]
    kind: FileKind
    write: Callable[[Path, threading.Event], bool]  # False, and no file: nothing in them is alive


class Store(Protocol):
    """The state of one partition."""

    spec: OperatorSpec
    seal: Seal
    segments: list[Segment]  # of the last committed version, oldest first, all kinds
    watermark_us: int | None  # of the last committed version; it never moves back
    late_rows: int  # dropped since the store was opened

    @property
    def memory_bytes(self) -> int:
        """What it holds in memory, to be compared with its share of the host's limit."""

    def apply(self, rows: pa.RecordBatch) -> None:
        """Take rows of `input_schema`; those of closed windows are dropped and counted."""

    def gather(self, watermark_us: int | None) -> Write:
        """What the epoch changed and the watermark leaves alive, ready to be written by the thunk.

        The thunk returns all segments of the epoch, oldest first; it touches nothing that `results` does.
        """

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        """What this epoch emits, as batches of `output_schema`."""

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        """The epoch is durable: `segments` is the version's list, closed windows are gone."""

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        """Whether any row of the segment is still wanted once the watermark stands there."""

    def keys_after(self, watermark_us: int | None) -> int:
        """Rows of state then, as far as known without reading the disk."""

    def compaction(self, many: int | None = None) -> Compaction | None:
        """What to merge next, if anything; with `many`, only where more segments than that piled up."""


@runtime_checkable
class LooksUp(Protocol):
    """A store that may read what is stored when rows are applied.

    It reads least where they come in large blocks ordered by hash: each part of a block then needs a part
    of the files only.
    """

    @property
    def looks_up(self) -> bool:
        """Whether it would read now."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A store that reads rows before they are asked for; counts since it was opened."""

    prefetch_hits: int
    prefetch_misses: int


def of_kind(segments: Sequence[Segment], kind: str) -> list[Segment]:
    """The segments of one kind, in their order."""
    return [segment for segment in segments if segment.kind == kind]
