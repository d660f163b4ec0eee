"""The driver of a lane of crash rounds: `python -m headrace.testing.crash.driver <folder>`, to be killed.

The driver runs the query of one round after another to the end of its input. A failed query is started
again in the same Spark session, as a user's supervisor would do. When Spark itself has ended, the process
ends and its lane starts it again.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import headrace as hr
from headrace.clock import SYSTEM_CLOCK
from headrace.testing.crash import short_spark
from headrace.testing.crash.input import SCHEMA
from headrace.testing.crash.lane import BRIDGE, CURRENT, DESCRIPTION, DONE, FORMAT, OVER, PREFETCH, STOPS
from headrace.testing.crash.queries import build
from headrace.testing.crash.work.classes import java_option

STARTS_MAX = 6
_STATE_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = 3


def session(folder: Path) -> Any:
    """A Spark session of two cores that tries a task four times and keeps every file under `folder`."""
    from pyspark.sql import SparkSession

    java = f"-XX:-UsePerfData {short_spark.JAVA} -Djava.io.tmpdir={folder / 'tmp'} {java_option()}"
    settings = {
        **short_spark.SETTINGS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": java,
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # One log file per batch shows which rows a batch has added.
        "spark.sql.streaming.fileSink.log.compactInterval": "1000",
        "spark.headrace.state.local": str(folder / "local"),
        "spark.headrace.partitions": str(PARTITIONS),
        "spark.headrace.timing": "eager",  # as in the model
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # a batch of the model is a file
        "spark.headrace.memory": "4m",  # small enough that a few heavy rows exceed it
        **from_environment(os.environ),
    }
    builder = SparkSession.builder.master("local[2,4]").appName("headrace-crash")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The bridge, hints, and the format of Spark's checkpoints; 2 needs a state store that keeps ids."""
    settings = {
        "spark.headrace.bridge": environment.get(BRIDGE, "auto"),
        "spark.headrace.prefetch": environment.get(PREFETCH, "auto"),
    }
    if environment.get(FORMAT, "1") == "2":
        settings |= {
            f"{_STATE_STORE}.checkpointFormatVersion": "2",
            f"{_STATE_STORE}.providerClass": _ROCKSDB,
        }
    return settings


def choose_hosts(lane: Path) -> None:
    """Makes hosts pause between the steps of a transaction, so that kills hit there; or stop on order."""
    from headrace.spark.task import task

    service = "headrace.testing.faults.slow_service:open_slow"
    if STOPS in os.environ:
        service = f"headrace.testing.faults.dying_service:open_obeying?{urlencode({'folder': lane})}"
    plain = task.task_of
    task.task_of = lambda plan: plain(replace(plan, service=service))


def process_all(spark: Any, folder: Path) -> None:
    """Runs the query over all files that are not processed yet.

    Asynchronous commits start with `hr.start`, as users do, which reconciles first. The other modes start
    without it, so that hosts alone redo the log, unless a disk was lost.
    """
    description = json.loads((folder / DESCRIPTION).read_text())
    kind, commit = description["kind"], description["commit"]
    spark.conf.set("spark.headrace.commit", commit)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    writer = build(kind, rows).writeStream.format("parquet").outputMode("append")
    writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "ck"))
    writer = writer.trigger(availableNow=True)
    query = hr.start(writer) if commit == "async" or description["repairs"] else writer.start()
    query.awaitTermination()


def rounds(lane: Path) -> Iterator[Path]:
    """The folders of the rounds to process, until the lane is over."""
    finished: Path | None = None  # the lane may be removing this folder
    while not (lane / OVER).exists():
        folder = _current(lane)
        if folder is None or folder == finished or (folder / DONE).exists():
            SYSTEM_CLOCK.sleep_ms(20)
        else:
            yield folder
            finished = folder


def _current(lane: Path) -> Path | None:
    try:
        return lane / (lane / CURRENT).read_text()
    except FileNotFoundError:
        return None


def run(lane: Path) -> int:
    spark = session(lane)
    choose_hosts(lane)
    for folder in rounds(lane):
        if not finish_round(spark, folder):
            return 2
        (folder / DONE).touch()
    spark.stop()
    return 0


def finish_round(spark: Any, folder: Path) -> bool:
    """Processes the round's input and restarts a failed query; returns whether it reached the end."""
    from pyspark.errors import StreamingQueryException

    for _ in range(STARTS_MAX):
        try:
            process_all(spark, folder)
            return True
        except StreamingQueryException:
            traceback.print_exc()
    return False


def main(folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        code = run(folder)
    except Exception:  # the supervisor restarts in every case; py4j raises many kinds for a lost JVM
        traceback.print_exc()
        code = 3
    sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
