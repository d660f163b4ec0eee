"""Code of libraries that the host is done with.

Importing the kernels leaves some 50 MB of the compiler's code resident, and no batch compiles anything. Its
pages are only a copy of the file: whoever needs them again reads them again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import suppress
from mmap import MADV_DONTNEED
from pathlib import Path

COMPILER = "libllvmlite"
_MAPS = Path("/proc/self/maps")


def let_go_of_code(library: str) -> None:
    """Tell the kernel that the code of a library need not stay resident."""
    with suppress(OSError, AttributeError):  # where this cannot be said, it only stays
        advise = ctypes.CDLL(None).madvise
        for start, length in code_of(library, _MAPS.read_text().splitlines()):
            advise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_DONTNEED)


def code_of(library: str, maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where the code of a library lies, and how long it is; never a page that could have been written."""
    for line in maps:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[1] == "r-xp" and Path(fields[5]).name.startswith(library):
            start, end = (int(bound, 16) for bound in fields[0].split("-"))
            yield start, end - start
