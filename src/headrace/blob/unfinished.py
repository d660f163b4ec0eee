"""Hidden names of unfinished files, and which of these files are left over from ended processes.

    .tmp-<machine>@<process id>-<32 hex digits>

The name contains machine and process of the writer. So leftovers of a killed process can be removed while
files of running processes, on this machine or another, stay. The writer may add a suffix.
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
    """Whether `name` is an unfinished file of an ended process of `machine`."""
    match = _HIDDEN.match(name)
    return match is not None and match[1] == machine and not is_alive(int(match[2]))


def this_machine() -> str:
    return quote(socket.gethostname(), safe="")[:100]


def is_alive(process: int) -> bool:
    """Whether a process of this machine, of any user, has that id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
