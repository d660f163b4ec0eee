"""Files as stores write them: kinds of segments, the files of an epoch, staged files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.row.run import Run
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.merge import Shape
from headrace.store.segments.reader import Segment

Sections = Sequence[tuple[int, Iterable[Run]]]  # by number, each an ordered sequence of ordered runs


@dataclass(frozen=True)
class FileKind:
    """One kind of segment that a store writes; the name is in the manifest's entries."""

    name: str
    shape: Shape
    appends: bool = False  # every row counts, equal keys included; else the newest row of a key does
    hash_word: int | None = None  # of rows ordered by time: the word of the hash; None: ordered by hash


class Files(Protocol):
    """The files of the running epoch, as a store writes them."""

    def write(self, kind: FileKind, sections: Sections) -> Segment:
        """Flushes sections as one segment, and opens it."""

    def spill(self, kind: FileKind, sections: Sections) -> Segment:
        """Writes a segment long before the epoch ends, which the version will most likely name."""
        return self.write(kind, sections)

    def place(self, path: Path, label: str) -> Segment:
        """Moves a finished file that is not a segment into the version; `label` finds it again."""
        raise TypeError(f"{type(self).__name__} places no files")


@dataclass(frozen=True)
class Gathered:
    """The changes of an epoch, ready to be written; called once, it writes all of them.

    `early` writes segments of changes that cannot be logged as rows. `sections` are rows: a logged commit
    logs them first and flushes them later. Segments count in the order `spilled`, `early`, `sections`.
    """

    files: Files
    sections: tuple[tuple[FileKind, Sections], ...] = ()  # one segment each, none empty
    spilled: tuple[Segment, ...] = ()
    early: Callable[[], list[Segment]] | None = None

    def write_early(self) -> list[Segment]:
        """The segments that exist before any row is logged."""
        return [*self.spilled, *(self.early() if self.early is not None else ())]

    def write_rows(self) -> list[Segment]:
        """Flushes the sections, one segment each."""
        return [self.files.write(kind, sections) for kind, sections in self.sections]

    def __call__(self) -> list[Segment]:
        return [*self.write_early(), *self.write_rows()]


class Staging(Protocol):
    """Local files that no version names yet."""

    def staged(self, kind: FileKind, write: Callable[[Path], bool]) -> SegmentFile | None:
        """Writes a file and opens it; None, and no file, when `write` returns False."""

    def discard(self, segments: Iterable[Segment]) -> None:
        """Removes files that will not be named."""


def of_kind(segments: Sequence[Segment], kind: str) -> list[Segment]:
    """The segments of one kind, in their order."""
    return [segment for segment in segments if segment.kind == kind]
