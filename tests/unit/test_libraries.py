"""Protects that only pages are let go of that are in their file: one that was written would be lost."""

from __future__ import annotations

import subprocess
import sys

from headrace.host.process.libraries import unwritten

SMAPS = """\
7f0000000000-7f0000003000 r--p 00000000 fe:00 12                         /opt/with space/libcompiler.so
Rss:                  12 kB
Private_Dirty:         0 kB
VmFlags: rd mr mw me
7f0000003000-7f0000009000 r-xp 00003000 fe:00 12                         /opt/with space/libcompiler.so
Private_Dirty:         0 kB
VmFlags: rd ex mr mw me
7f0000009000-7f000000b000 r--p 00009000 fe:00 12                         /opt/with space/libcompiler.so
Private_Dirty:         8 kB
VmFlags: rd mr mw me ac
7f000000b000-7f000000c000 rw-p 0000b000 fe:00 12                         /opt/with space/libcompiler.so
Private_Dirty:         0 kB
VmFlags: rd wr mr mw me ac
7f000000c000-7f000000d000 r-xp 00000000 00:00 0
Private_Dirty:         0 kB
VmFlags: rd ex mr mw me
7f000000d000-7f000000e000 r-xp 00000000 00:00 0                          [vdso]
Private_Dirty:         0 kB
VmFlags: rd ex mr mw me de
7f000000e000-7f000000f000 r--s 00000000 fe:00 13                         /dev/shm/shared
Private_Dirty:         0 kB
VmFlags: rd mr me ms
"""

GOES_ON = """
import numba, numpy, pyarrow
from headrace.host.process.libraries import release_library_pages
twice = numba.njit(lambda n: 2 * n)
assert twice(21) == 42
release_library_pages()
assert twice(21) == 42 and numba.njit(lambda n: 3 * n)(14) == 42
assert pyarrow.array(numpy.arange(9)).sum().as_py() == 36
"""


def test_only_files_that_nobody_can_have_written() -> None:
    assert list(unwritten(SMAPS.splitlines())) == [(0x7F0000000000, 0x3000), (0x7F0000003000, 0x6000)]


def test_libraries_work_on_after_their_pages_are_released() -> None:
    subprocess.run([sys.executable, "-c", GOES_ON], check=True, timeout=300)
