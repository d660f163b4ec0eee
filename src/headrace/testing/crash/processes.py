"""The processes of a crash round: recognised by a mark in their environment, ended by their ids.

Spark's JVM, its Python workers and the state host inherit the mark from the round's driver, even after
their parents have ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from headrace.clock import SYSTEM_CLOCK, wait_until
from headrace.testing.crash.plan import Target

MARK = "HEADRACE_CRASH_ROUND"
_YOUNG_S = 2.0


def start_driver(folder: Path, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts the round's driver with `more` environment; its output is appended to `driver.log`."""
    for name in ("tmp", "work"):
        (folder / name).mkdir(exist_ok=True)
    environment = {**os.environ, MARK: str(folder), "TMPDIR": str(folder / "tmp"), **more}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "headrace.testing.crash.driver", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder / "work",
            env=environment,
        )


def marked(folder: Path) -> list[psutil.Process]:
    """All live processes of the round."""
    return [process for process in psutil.process_iter() if _is_marked(process, str(folder))]


class Census:
    """The roles of a round's processes; inspects only new and young processes again.

    A young process may still be the copy of its parent that a fork makes. Threads: one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._roles: dict[int, Target | None] = {}

    def victims(self, target: Target, driver: int) -> list[int]:
        """The pids that a kill of `target` may hit."""
        running = set(psutil.pids())
        self._roles = {pid: kind for pid, kind in self._roles.items() if pid in running}
        kinds = {pid: self._kind(pid, driver) for pid in running}
        return [pid for pid, kind in kinds.items() if kind == target]

    def _kind(self, pid: int, driver: int) -> Target | None:
        if pid in self._roles:
            return self._roles[pid]
        kind, young = None, False
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            young = SYSTEM_CLOCK.now_ms() / 1000 - process.create_time() < _YOUNG_S
            kind = role(process, driver) if _is_marked(process, self._folder) else None
        if not young:
            self._roles[pid] = kind
        return kind


def _is_marked(process: psutil.Process, mark: str) -> bool:
    with suppress(psutil.Error, OSError):
        return bool(process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE)
    return False


def role(process: psutil.Process, driver: int) -> Target | None:
    """The role of a process of the round; None for one that is no target, or has ended."""
    with suppress(psutil.Error):
        if process.pid == driver:
            return "driver"
        command = process.cmdline()
        if command[1:3] == ["-m", "headrace.host"]:
            return "host"
        if "pyspark.daemon" in command or "pyspark.worker" in command:
            return "worker"
        if command and Path(command[0]).name == "java":
            return "jvm"
    return None


def kill(pid: int) -> bool:
    """Sends SIGKILL; returns False when the process had ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def left_running(folder: Path, within_s: float) -> list[str]:
    """The round's processes that still run after a while, as readable lines."""
    eventually(lambda: not marked(folder), within_s)
    lines = []
    for process in marked(folder):
        with suppress(psutil.Error):
            lines.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
    return lines


def end_all(folder: Path) -> None:
    """Kills all processes of the round."""
    for process in marked(folder):
        kill(process.pid)


def eventually(holds: Callable[[], bool], within_s: float) -> bool:
    """Whether the condition holds before the time is over."""
    return wait_until(holds, within_s * 1000, every_ms=250)
