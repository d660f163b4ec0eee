"""Starting the machine's host: several tasks may race, exactly one host comes of it.

Invariants: a host is alive while its `alive` lock is held, whatever its pid. Only the holder of the
`start` lock starts one, and it removes what a dead host left behind first.
Threads: any, in any number of processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.clock import SYSTEM_CLOCK, Clock, Deadline
from headrace.errors import HostUnavailable
from headrace.host.process.locks import is_dying, is_held, lock_within, remove_socket
from headrace.host.process.settings import HostPaths, HostSettings
from headrace.plan.times import TIMES

_LOOK_MS = 20.0  # between two looks for a host that starts
_TAIL_BYTES = 1500

# Keep resident memory tight: few arenas, large blocks go back to the system, no idle thread pools. Blocks
# of a size that every batch needs again and again stay: new pages cost as much as filling them.
MEMORY_SETTINGS = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "4194304",
    "MALLOC_TRIM_THRESHOLD_": "16777216",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class HostAddress:
    """Where a live host listens."""

    address: str
    tcp: str | None
    pid: int
    door: str = ""  # the plain socket, for the JVM


def find_host(settings: HostSettings) -> HostAddress | None:
    """The machine's host if one is alive and ready."""
    paths = HostPaths.of(settings)
    try:
        paths.refuse_strangers()
        if is_held(paths.alive):
            address = HostAddress(**json.loads(paths.ready.read_text()))
            return None if is_dying(address.pid) else address
    except (FileNotFoundError, ValueError):
        pass
    return None


def ensure_host(
    settings: HostSettings, within_s: float = TIMES.host_start_s, clock: Clock = SYSTEM_CLOCK
) -> HostAddress:
    """The machine's host; started if there is none."""
    running = find_host(settings)
    return running or _start_or_wait(settings, Deadline(within_s * 1000, clock), clock)


def _start_or_wait(settings: HostSettings, deadline: Deadline, clock: Clock) -> HostAddress:
    paths = HostPaths.of(settings)
    paths.make()
    starting = lock_within(paths.start, deadline.left_ms, clock)
    if starting is None:
        raise _unavailable(paths, "another task has been starting the state host for too long")
    try:
        started: subprocess.Popen[bytes] | None = None
        while (address := find_host(settings)) is None:
            if deadline.is_over:
                raise _unavailable(paths, f"the state host{_process(paths)} did not become ready in time")
            if started is not None and started.poll() is not None and not is_held(paths.alive):
                raise _unavailable(paths, f"the state host ended with code {started.returncode}")
            if started is None and not is_held(paths.alive):
                started = _spawn(settings, paths)
            clock.sleep_ms(_LOOK_MS)
        return address
    finally:
        os.close(starting)


def _process(paths: HostPaths) -> str:
    """The process of a host that starts, for messages. It may be slow, so it is not ended."""
    pid = _text(paths.alive).strip()
    return f" (process {pid})" if pid and is_held(paths.alive) else ""


def _spawn(settings: HostSettings, paths: HostPaths) -> subprocess.Popen[bytes]:
    """Start the process apart from the caller's: own session, no descriptors, output to the log."""
    _sweep(paths)
    descriptor = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.host"],
            stdin=subprocess.PIPE,
            stdout=descriptor,
            stderr=descriptor,
            cwd=paths.folder,
            env=environment(os.environ),
            close_fds=True,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    assert process.stdin is not None
    process.stdin.write(f"{settings.to_json()}\n".encode())
    process.stdin.close()
    # Somebody must wait for the child, or a dead host would stay as a zombie while this process lives.
    threading.Thread(target=process.wait, name="host-reaper", daemon=True).start()
    return process


def environment(inherited: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """The host's environment: the caller's import path, without what belongs to Spark's worker."""
    kept = {name: value for name, value in inherited.items() if not _is_workers(name)}
    return {**kept, **MEMORY_SETTINGS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _is_workers(name: str) -> bool:
    return name.startswith(("PYTHON_WORKER", "PYSPARK_", "SPARK_")) or name in ("PYTHONHASHSEED",)


def _sweep(paths: HostPaths) -> None:
    """Remove what a host that was killed could not remove itself."""
    with suppress(FileNotFoundError, ValueError, KeyError):
        ready = json.loads(paths.ready.read_text())
        remove_socket(Path(ready["address"].removeprefix("grpc+unix://")))
        remove_socket(Path(ready["door"]))
    paths.ready.unlink(missing_ok=True)
    for socket in paths.folder.glob(f"{paths.socket_stem}*.sock"):
        remove_socket(socket)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _unavailable(paths: HostPaths, message: str) -> HostUnavailable:
    tail = _text(paths.log)[-_TAIL_BYTES:].strip()
    log_end = f"; its log ends:\n{tail}" if tail else ""
    return HostUnavailable(f"{message}{log_end}", hint=f"the log is {paths.log}")
