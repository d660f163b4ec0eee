"""The driver of a lane of crash rounds: `python -m headrace.testing.crash_driver <folder>`, to be killed.

It runs the query of one round after another to the end of its input. A query that fails is started again
in the same session, as a user's supervisor would do; when Spark itself is gone the process ends, and
whoever started it starts it again.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import headrace as hr
from headrace.testing import short_spark
from headrace.testing.crash_classes import java_option
from headrace.testing.crash_input import SCHEMA
from headrace.testing.crash_lane import CURRENT, DESCRIPTION, DONE, OVER, STOPS
from headrace.testing.crash_queries import build

STARTS_MAX = 6
PARTITIONS = 3


def session(folder: Path) -> Any:
    """A Spark of two cores that tries a task four times and keeps every file under `folder`."""
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
        # One log file per batch says which rows a batch has added.
        "spark.sql.streaming.fileSink.log.compactInterval": "1000",
        "spark.headrace.state.local": str(folder / "local"),
        "spark.headrace.partitions": str(PARTITIONS),
        "spark.headrace.memory": "4m",  # little enough that a few heavy rows outgrow it
    }
    builder = SparkSession.builder.master("local[2,4]").appName("headrace-crash")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def choose_hosts(lane: Path) -> None:
    """Let hosts pause between the steps of a transaction, so that kills fall there; or stop as ordered."""
    from headrace.spark import task

    service = "headrace.testing.slow_service:open_slow"
    if STOPS in os.environ:
        service = f"headrace.testing.dying_service:open_obeying?{urlencode({'folder': lane})}"
    plain = task.task_of
    task.task_of = lambda plan: plain(replace(plan, service=service))


def process_all(spark: Any, folder: Path) -> None:
    """Run the query over all files that are not processed yet.

    Asynchronous commits are started as users start them, which reconciles first; the others are not, so
    that hosts alone find what is in the log, unless a disk was lost.
    """
    said = json.loads((folder / DESCRIPTION).read_text())
    kind, commit = said["kind"], said["commit"]
    spark.conf.set("spark.headrace.commit", commit)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    writer = build(kind, rows).writeStream.format("parquet").outputMode("append")
    writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "ck"))
    writer = writer.trigger(availableNow=True)
    query = hr.start(writer) if commit == "async" or said["repairs"] else writer.start()
    query.awaitTermination()


def rounds(lane: Path) -> Iterator[Path]:
    """The folders of the rounds that the lane wants processed, until it is over."""
    finished: Path | None = None  # the lane may be removing it
    while not (lane / OVER).exists():
        folder = _current(lane)
        if folder is None or folder == finished or (folder / DONE).exists():
            time.sleep(0.02)
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
    """Process the round's input, starting a failed query again; whether it came to the end."""
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
    except Exception:  # whatever it is, the supervisor starts anew; py4j raises many kinds for a lost JVM
        traceback.print_exc()
        code = 3
    sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
