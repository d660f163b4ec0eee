"""Which jar to load: the one of the package, or one that is compiled now, once, into the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.errors import SettingError
from headrace.jvm.build import JARS, Label, build, jar_path, label_of, minor_of, sources_digest

SUPPORTED_MAJOR = "4"


class NoJar(SettingError):
    """There is no jar for this Spark, and none can be made."""


def jar_for(version: str, java_home: str, spark_home: Path, folder: Path = JARS) -> Path:
    """A jar of the package's own sources for this Spark; compiled here where the package has none."""
    if not version.startswith(f"{SUPPORTED_MAJOR}."):
        raise NoJar(f"Spark {version} is not known to the JVM operator", hint="use Spark 4")
    wanted = Label(minor_of(version), sources_digest())
    packaged = jar_path(version, folder)
    if label_of(packaged) == wanted:
        return packaged
    cached = cache_folder() / f"headrace-spark-{wanted.spark}-{wanted.sources}.jar"
    if label_of(cached) == wanted:
        return cached
    try:
        return build(cached, spark_home, version, str(Path(java_home) / "bin" / "java"))
    except (OSError, RuntimeError) as error:
        raise NoJar(
            f"there is no jar for Spark {version}, and it cannot be compiled: {_first_line(error)}",
            hint="python -m headrace.jvm.build shows the compiler's messages",
        ) from None


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "headrace"


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
