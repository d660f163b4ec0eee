"""Hidden names of files that are being written, and which of them were left behind by the dead.

    .tmp-<machine>@<process id>-<32 hex digits>

A name says which process on which machine writes it, so that leftovers of a killed process can be removed
while the files of living ones, here or elsewhere, stay. Whoever writes the file may add an ending.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Callable
from urllib.parse import quote

_HIDDEN = re.compile(r"\.tmp-([^@]*)@(\d+)-[0-9a-f]{32}", re.ASCII)


def hidden_name() -> str:
    """A new name for a file of this process."""
    return f".tmp-{this_machine()}@{os.getpid()}-{uuid.uuid4().hex}"


def is_left_behind(name: str, machine: str, is_alive: Callable[[int], bool]) -> bool:
    """Whether `name` is an unfinished file of a process of `machine` that is no more."""
    match = _HIDDEN.match(name)
    return match is not None and match[1] == machine and not is_alive(int(match[2]))


def this_machine() -> str:
    return quote(socket.gethostname(), safe="")[:100]


def is_alive(process: int) -> bool:
    """Whether a process of this machine has that id; one of another user counts."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
