"""The bytes of a segment file: header, footer and trailer as 64-bit little-endian words.

    segment = header · section* · footer · trailer
    section = block* · page* · directory        (page = firsts · offsets · row starts · checks · filter)

A section of one page has no directory. Version 1 has one page per section, whatever its size, and no width
in its footer. `docs/format.md` documents every word. The trailer's checksum covers the footer, the footer
each directory (or single page), a directory its pages, a page its blocks. So the trailer's checksum
identifies the whole content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from headrace.errors import StateCorrupt, StateUnsupported
from headrace.kernels.core.checksum import xxh64
from headrace.kernels.core.filter import filter_start
from headrace.row.arrays import U64

MAGIC = int.from_bytes(b"\x89HRSEG\r\n", "little")
MAGIC_END = int.from_bytes(b"\x89HRSEG2\n", "little")  # of a trailer of version 2
VERSION = 2
PAGE_BLOCKS = 32
HEADER_BYTES = 32
TRAILER_BYTES = 32
_ENTRY_WORDS = {1: 8, 2: 10}
_DIRECTORY_WORDS = 5  # per page, and 3 more
_WRAP = 1 << 64
_HINT = "put back an intact copy of the file, or go back to an older version that does not name it"


def corrupt(path: str | Path, what: str) -> StateCorrupt:
    """The error for a segment whose bytes are wrong."""
    return StateCorrupt(f"segment {path} is corrupt: {what}", hint=_HINT)


def other_layout(path: str | Path, what: str) -> StateUnsupported:
    """The error for an intact segment whose rows this release lays out in another way."""
    return StateUnsupported(
        f"segment {path} is intact, and its rows are laid out in another way: {what}",
        hint="run the release of Headrace that wrote it, or start again with a new checkpoint location",
    )


@dataclass(frozen=True)
class SectionEntry:
    """The position of one slice's rows in the file, and the range of their hashes."""

    slice: int
    rows: int
    blocks: int
    min_hash: int
    max_hash: int
    start: int  # byte offset of the first block
    index: int  # byte offset of the first page, which is the end of the last block
    check: int  # checksum of the directory, or of the single page
    directory: int = 0  # byte offset of the directory; 0: there is one page
    pages: int = 1

    @property
    def index_words(self) -> int:
        """Words of the single page, or of the directory."""
        if self.directory:
            return _DIRECTORY_WORDS * self.pages + 3
        return 4 * self.blocks + 2 + int(filter_start(self.rows, self.blocks))

    @property
    def end(self) -> int:
        """The byte after the section."""
        return (self.directory or self.index) + 8 * self.index_words

    @property
    def nbytes(self) -> int:
        """Bytes of blocks, pages and directory."""
        return self.end - self.start

    def lies_in(self, low: int, high: int) -> bool:
        """Whether all hashes of the section are in `[low, high)`."""
        return low <= self.min_hash and self.max_hash < high

    def pack(self) -> list[int]:
        return [
            self.slice % _WRAP,
            self.rows,
            self.blocks,
            self.min_hash,
            self.max_hash,
            self.start,
            self.index,
            self.check,
            self.directory,
            self.pages,
        ]


@dataclass(frozen=True)
class Footer:
    """The contents of the file, and the checksum that identifies them."""

    variable_words: tuple[int, ...]
    sections: tuple[SectionEntry, ...]
    checksum: int


@dataclass(frozen=True)
class FooterPlace:
    """Where the footer is, and what it must be."""

    offset: int
    words: int
    check: int
    version: int


@lru_cache(maxsize=64)
def header(width: int) -> bytes:
    """The first 32 bytes; later format versions keep this form."""
    return _checked([MAGIC, VERSION, width]).tobytes()


def footer(
    width: int, variable_words: Sequence[int], sections: Sequence[SectionEntry], offset: int
) -> tuple[bytes, int]:
    """Footer and trailer for byte `offset`, the end of the last section; and the checksum."""
    packed = [width, len(variable_words), *variable_words, len(sections)]
    for entry in sections:
        packed += entry.pack()
    body = np.array(packed, np.uint64)
    check = int(xxh64(body))
    return body.tobytes() + np.array([offset, body.size, check, MAGIC_END], np.uint64).tobytes(), check


def check_header(path: str | Path, data: bytes, width: int) -> None:
    """Raises unless `data` is the header of a segment of this format with rows of `width` words."""
    if len(data) < HEADER_BYTES:
        raise corrupt(path, f"it ends after {len(data)} bytes")
    words = np.frombuffer(data, np.uint64).copy()
    if int(words[0]) != MAGIC:
        raise corrupt(path, "it does not begin with the magic of a segment")
    if int(xxh64(words[:3])) != int(words[3]):
        raise corrupt(path, "its header fails its checksum")
    if int(words[1]) not in _ENTRY_WORDS:
        raise StateUnsupported(
            f"segment {path} has format version {words[1]}; this release reads versions up to {VERSION}",
            hint="run the release of Headrace that wrote it, or a newer one",
        )
    _check_width(path, int(words[2]), width)


def _check_width(path: str | Path, width: int, expected: int) -> None:
    if width != expected:
        raise other_layout(path, f"its rows have {width} words, the operator's have {expected}")


def footer_place(path: str | Path, trailer: bytes, size: int) -> FooterPlace:
    """Where the footer of a file of `size` bytes is."""
    if len(trailer) < TRAILER_BYTES:
        raise corrupt(path, "it is truncated")
    offset, words, check, magic = (int(word) for word in np.frombuffer(trailer, np.uint64))
    if magic not in (MAGIC, MAGIC_END):
        raise corrupt(path, "it is truncated: it does not end with the magic of a segment")
    if offset < HEADER_BYTES or offset + 8 * words + TRAILER_BYTES != size:
        raise corrupt(
            path, f"its length is {size} bytes, its trailer records {offset + 8 * words + TRAILER_BYTES}"
        )
    return FooterPlace(offset, words, check, 1 if magic == MAGIC else 2)


def parse_footer(path: str | Path, data: bytes, place: FooterPlace, width: int) -> Footer:
    """Parses the footer of a file whose rows must have `width` words."""
    body = np.frombuffer(data, np.uint64).copy()
    if int(xxh64(body)) != place.check:
        raise corrupt(path, "its footer fails its checksum")
    words = [int(word) for word in body]
    if place.version > 1:
        _check_width(path, words.pop(0), width)
    variable, entry_words = tuple(words[1 : 1 + words[0]]), words[1 + words[0] :]
    size = _ENTRY_WORDS[place.version]
    entries = tuple(_entry(entry_words[at : at + size]) for at in range(1, 1 + entry_words[0] * size, size))
    end = HEADER_BYTES
    for entry in entries:
        if entry.start != end or entry.index < entry.start:
            raise corrupt(path, f"the section of slice {entry.slice} is not where it must be")
        end = entry.end
    if end != place.offset:
        raise corrupt(path, "its sections do not end at its footer")
    return Footer(variable, entries, place.check)


def _entry(words: Sequence[int]) -> SectionEntry:
    signed = words[0] - _WRAP if words[0] >= _WRAP >> 1 else words[0]
    return SectionEntry(signed, *words[1:])


def _checked(words: Sequence[int]) -> U64:
    body = np.array(words, np.uint64)
    return np.append(body, np.uint64(xxh64(body)))
