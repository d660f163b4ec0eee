"""An archive of the classes that Spark loads: with it, the JVMs of the crash rounds start twice as fast.

A JVM without an archive, or with one of another Java, starts without it.
"""

from __future__ import annotations

import os
from pathlib import Path

_WRITE, _READ = "HEADRACE_CRASH_CLASSES_TO", "HEADRACE_CRASH_CLASSES"


def java_option() -> str:
    """The JVM option that names the archive."""
    if _WRITE in os.environ:
        return f"-XX:ArchiveClassesAtExit={os.environ[_WRITE]}"
    if _READ in os.environ:
        return f"-XX:SharedArchiveFile={os.environ[_READ]}"
    return ""


def to_write(path: Path) -> dict[str, str]:
    """The environment of a driver that writes an archive when it ends."""
    return {_WRITE: str(path)}


def to_read(path: Path) -> dict[str, str]:
    """The environment of drivers that use the archive."""
    return {_READ: str(path)} if path.exists() else {}
