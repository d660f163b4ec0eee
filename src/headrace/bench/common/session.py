"""The Spark session of benchmarks and of the demonstration."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

EXIT_WITHIN_S = 10.0
_QUIET = """\
rootLogger.level = fatal
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
# PySpark lacks Hadoop's native library. So Spark's default manager for a local disk starts some thirty
# shell commands per batch (readlink, chmod). They take a tenth of a second in which nothing else happens.
_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


@contextmanager
def local_session(
    name: str, scratch: Path, cores: int = 2, settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """An embedded Spark of `cores` cores with all its files under `scratch`."""
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
    """The same, in a process that opens no other Spark session: its JVM is ended at the end.

    A JVM in which Spark's own RocksDB store has run may hang for minutes when it exits, beside the next
    measurement.
    """
    with ExitStack() as last, local_session(name, scratch, cores, settings) as spark:
        last.callback(end, spark.sparkContext._gateway.proc)
        yield spark


def end(jvm: Popen[bytes]) -> None:
    """Waits for the JVM to exit, and kills it if it does not."""
    assert jvm.stdin is not None, "PySpark ends its JVM by closing this pipe"
    jvm.stdin.close()
    try:
        jvm.wait(EXIT_WITHIN_S)
    except TimeoutExpired:
        jvm.kill()
        jvm.wait()
