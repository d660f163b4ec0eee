"""The Spark session that benchmarks and the demonstration run in."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

_EXIT_WITHIN_S = 10.0
_QUIET = """\
rootLogger.level = fatal
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
# Without Hadoop's native library, which PySpark lacks, the manager that Spark takes for a local disk starts
# some thirty shell commands per batch (readlink, chmod): a tenth of a second in which nothing else happens.
_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


@contextmanager
def local_session(
    name: str, scratch: Path, cores: int = 2, settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """An embedded Spark of `cores` cores whose files all lie under `scratch`."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = scratch / "log4j2.properties"
    scratch.mkdir(parents=True, exist_ok=True)
    quiet.write_text(_QUIET)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet.as_uri()}")
        .config("spark.local.dir", str(scratch / "spark"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.unix.domain.socket.dir", str(scratch))
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.streaming.checkpointFileManagerClass", _CHECKPOINT_FILES)
        .config("spark.headrace.state.local", str(scratch / "local"))
    )
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def sole_session(
    name: str, scratch: Path, cores: int = 2, settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """The same in a process that will have no other session: its JVM is gone afterwards.

    A JVM in which Spark's own RocksDB store has run may hang when it exits (seven minutes were seen, and a
    crash at their end), beside whatever is measured next.
    """
    with ExitStack() as last, local_session(name, scratch, cores, settings) as spark:
        last.callback(_end, spark.sparkContext._gateway.proc)
        yield spark


def _end(jvm: Popen[bytes]) -> None:
    """Let the JVM exit, or kill it where it does not."""
    assert jvm.stdin is not None, "PySpark ends its JVM by closing this pipe"
    jvm.stdin.close()
    try:
        jvm.wait(_EXIT_WITHIN_S)
    except TimeoutExpired:
        jvm.kill()
        jvm.wait()
