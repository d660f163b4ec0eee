"""The name of the machine that a task runs on. Tasks with the same name share a host."""

from __future__ import annotations

import os
import socket
import subprocess
import zlib
from pathlib import Path

from headrace.plan.options import HostPer


def machine_name(per: HostPer) -> str:
    """A name that all executors of a machine share, or with `per="executor"` one executor's tasks."""
    name = f"{socket.gethostname()[:24]}-{zlib.crc32(_boot_id().encode()):08x}"
    return f"{name}-x{_executor_pid()}" if per == "executor" else name


def _boot_id() -> str:
    """An id that separates machines with one host name, such as containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _executor_pid() -> int:
    """The executor's JVM: parent of this worker, or of the daemon that forked it."""
    parent = os.getppid()
    return _parent_of(parent) if "pyspark.daemon" in _command(parent) else parent


def _ps(pid: int, column: str) -> str:
    done = subprocess.run(
        ["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return _ps(pid, "command")


def _parent_of(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])
    except OSError:
        return int(_ps(pid, "ppid") or 0)
