"""File locks between processes, and the socket's place. The kernel frees a lock when its holder dies."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.clock import SYSTEM_CLOCK, Clock, Deadline

_SOCKET_PATH_MAX = 100  # the kernel's limit is about 107 bytes
_SHORT = "hr-"
_LOOK_MS = 20.0  # between two tries for a lock


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """A descriptor that holds the lock, or None while somebody else does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(path: Path) -> bool:
    """Whether a process holds the lock for itself. Askers share, so that they do not see each other."""
    descriptor = try_lock(path, shared=True)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def is_dying(pid: int) -> bool:
    """Whether a process was killed but its last threads, and with them its locks, are not gone yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return Path("/proc/self/stat").exists()  # gone; without /proc it counts as alive
    return state in "ZX"


def lock_within(path: Path, within_ms: float, clock: Clock = SYSTEM_CLOCK) -> int | None:
    """Like `try_lock`, but repeats it until `within_ms` have passed."""
    deadline = Deadline(within_ms, clock)
    while (descriptor := try_lock(path)) is None and not deadline.is_over:
        clock.sleep_ms(_LOOK_MS)
    return descriptor


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock of an existing file or directory; goes on without where it cannot be locked."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network file systems lock only what is open for writing
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def socket_path(folder: Path, name: str, temporary: str | None = None) -> Path:
    """Where a Unix socket can lie: in `folder`, or where that is too deep, in a short 0700 directory.

    That directory is made in `temporary`, or where temporary files go.
    """
    path = folder / name
    if len(os.fsencode(path)) <= _SOCKET_PATH_MAX:
        return path
    return Path(tempfile.mkdtemp(prefix=_SHORT, dir=temporary)) / name  # mkdtemp makes it 0700


def remove_socket(path: Path) -> None:
    """Remove a socket, and the short directory that was made for it."""
    path.unlink(missing_ok=True)
    if path.parent.name.startswith(_SHORT):
        with suppress(OSError):  # only an empty one goes: nothing else lies in the one that was made
            path.parent.rmdir()
