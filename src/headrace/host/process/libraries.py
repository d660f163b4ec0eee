"""What the start has left resident of the libraries' files.

Loading libraries and kernels touches some 130 MB of code and constants, most of all the compiler's, and no
batch compiles anything. These pages are only copies of the files: whoever needs one again reads it again.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from mmap import MADV_DONTNEED
from pathlib import Path

_SMAPS = Path("/proc/self/smaps")
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+\s+(/.*)?")


def release_library_pages() -> None:
    """Releases resident pages that are mapped from files and unchanged."""
    with suppress(OSError, AttributeError):  # without `madvise` the pages stay resident
        advise = ctypes.CDLL(None).madvise
        for start, length in unwritten(_SMAPS.read_text().splitlines()):
            advise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_DONTNEED)


def unwritten(smaps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Start and length of each mapping of a file that cannot be written, and of which no page was."""
    extent: tuple[int, int] | None = None
    for line in smaps:
        mapping = _MAPPING.fullmatch(line)
        if mapping is not None:
            start, end, may, path = int(mapping[1], 16), int(mapping[2], 16), mapping[3], mapping[4]
            extent = (start, end - start) if path and may[1] == "-" and may[3] == "p" else None
        elif line.startswith("Private_Dirty:") and int(line.split()[1]):
            extent = None  # such as addresses that the loader wrote
        elif line.startswith("VmFlags:") and extent is not None:  # the last line of a mapping
            yield extent
            extent = None
