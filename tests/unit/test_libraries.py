"""Protects that only code is let go of: a page that was written and is dropped is lost."""

from __future__ import annotations

import subprocess
import sys

from headrace.host.libraries import COMPILER, code_of

MAPS = """\
7f0000000000-7f0000003000 r--p 00000000 fe:00 12 /opt/site-packages/llvmlite/binding/libllvmlite.so
7f0000003000-7f0000009000 r-xp 00003000 fe:00 12 /opt/site-packages/llvmlite/binding/libllvmlite.so
7f0000009000-7f000000b000 rw-p 00009000 fe:00 12 /opt/site-packages/llvmlite/binding/libllvmlite.so
7f000000b000-7f000000c000 r-xp 00000000 fe:00 13 /opt/site-packages/with space/libother.so
7f000000c000-7f000000d000 r-xp 00000000 00:00 0
"""

COMPILES_AGAIN = """
import numba
from headrace.host.libraries import COMPILER, let_go_of_code
twice = numba.njit(lambda n: 2 * n)
assert twice(21) == 42
let_go_of_code(COMPILER)
assert twice(21) == 42 and numba.njit(lambda n: 3 * n)(14) == 42
"""


def test_code_alone_is_found() -> None:
    assert list(code_of(COMPILER, MAPS.splitlines())) == [(0x7F0000003000, 0x6000)]
    assert list(code_of("libother", MAPS.splitlines())) == [(0x7F000000B000, 0x1000)]


def test_a_compiler_that_was_let_go_of_compiles_again() -> None:
    subprocess.run([sys.executable, "-c", COMPILES_AGAIN], check=True, timeout=300)
