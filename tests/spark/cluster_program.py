"""Runs the crash rounds' queries on two executors and prints what happened as JSON; see test_cluster.py.

A program of its own, because a process has one Spark master.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.host.process.locks import remove_socket
from headrace.spark.driver.driver import coordinator_for
from headrace.spark.task import task
from headrace.testing.crash.input import SCHEMA
from headrace.testing.crash.queries import build

PARTITIONS = 3
PAUSED = "headrace.testing.faults.dying_service:open_dying?moment=publishing&pause_s=600"
SLOW = PAUSED.replace("600", "2")


def session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(spark_home(folder / "home"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "700m",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.fileSink.log.compactInterval": "1000",
        "spark.headrace.state.local": str(folder / "local"),
        "spark.headrace.partitions": str(PARTITIONS),
        "spark.headrace.memory": "64m",
        "spark.headrace.bridge": os.environ.get("HEADRACE_TEST_BRIDGE", "jvm"),
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("cluster")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def spark_home(home: Path) -> Path:
    """A Spark home in the test's folder: executors start from it and write their logs into it."""
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name in ("bin", "jars", "sbin"):
            (home / part.name).symlink_to(part)
    return home


def with_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Says for each row on which executor its task ran."""
    from headrace.spark.task.machine import machine_name

    for batch in batches:
        where = pa.array([machine_name("executor")] * batch.num_rows, pa.string())
        yield batch.append_column("executor", where)


def run(spark: SparkSession, folder: Path, kind: Any, out: str) -> str:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    df: DataFrame = build(kind, rows)
    if out == "travelling":
        schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in df.schema)
        df = df.mapInArrow(with_executor, f"{schema}, executor string")
        group = F.shiftrightunsigned(F.xxhash64("user", "item"), 54)
        df = df.withColumn("partition", F.shiftright(group * PARTITIONS, 10))
    writer = df.writeStream.format("parquet").option("path", str(folder / out / "out"))
    writer = writer.option("checkpointLocation", str(folder / out / "ck")).outputMode("append")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return str(query.id)


def hosts_of(spark: SparkSession, query: str) -> list[dict[str, Any]]:
    """The hosts that hold state of the query: who they are and which partitions they have."""
    hosts = []
    for machine, host in coordinator_for(spark).hosts().items():
        partitions = [
            part["partition"] for part in host.status.get("partitions", ()) if part["query"] == query
        ]
        if partitions:
            hosts.append(
                {"machine": machine, "addresses": host.addresses, "partitions": sorted(partitions)}
            )
    return hosts


def main(folder: Path) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = session(folder)
    report: dict[str, Any] = {}
    for kind in ("window", "running"):
        query = run(spark, folder, kind, kind)
        report[kind] = {"query": query, "hosts": settled_hosts(spark, query)}
    spark.conf.set("spark.headrace.host.per", "executor")
    query = run(spark, folder, "running", "travelling")
    report["travelling"] = {"query": query, "hosts": settled_hosts(spark, query)}
    spark.stop()
    (folder / "said.json").write_text(json.dumps(report))


def redo(folder: Path) -> None:
    """All hosts die between the acknowledgements of a batch, one of them with its executor."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark, plain = session(folder), task.task_of
    spark.conf.set("spark.headrace.host.per", "executor")
    spark.conf.set("spark.headrace.commit", "async")
    task.task_of = lambda plan: plain(replace(plan, service=PAUSED))
    query = run(spark, folder, "running", "redo")
    task.task_of = plain
    before = settled_hosts(spark, query)
    for host in coordinator_for(spark).hosts().values():
        os.kill(host.pid, signal.SIGKILL)
    lost = max(before, key=lambda host: len(host["partitions"]))
    dead, socket = lost["machine"], Path(lost["addresses"]["unix"].removeprefix("grpc+unix://"))
    os.kill(int(dead.rpartition("-x")[2]), signal.SIGKILL)
    if socket.parent.name.startswith("hr-"):  # nobody comes back to a lost machine to clean up
        shutil.rmtree(socket.parent)
    state = folder / "redo" / "ck" / "headrace-state" / query
    published = [path.name for path in state.glob("*/p*/manifests/*")]
    for path in sorted((folder / "more").iterdir()):
        shutil.copy2(path, folder / "in")
    run(spark, folder, "running", "redo")
    hosts = settled_hosts(spark, query)
    spark.stop()
    report = {"query": query, "dead": dead, "published": published, "before": before, "hosts": hosts}
    (folder / "said.json").write_text(json.dumps(report))


def pinned(folder: Path) -> None:
    """A host dies between the acknowledgements, and no other executor has its disk."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark, plain = session(folder), task.task_of
    spark.conf.set("spark.headrace.host.per", "executor")
    spark.conf.set("spark.headrace.state.local", str(folder / "local-{machine}"))
    spark.conf.set("spark.headrace.commit", "async")
    task.task_of = lambda plan: plain(replace(plan, service=PAUSED))
    query = run(spark, folder, "running", "pinned")
    task.task_of = plain
    before, coordinator = settled_hosts(spark, query), coordinator_for(spark)
    killed = list(coordinator.hosts().values())
    for host in killed:
        os.kill(host.pid, signal.SIGKILL)
    state = folder / "pinned" / "ck" / "headrace-state" / query
    published = [path.name for path in state.glob("*/p*/manifests/*")]
    while coordinator.hosts():  # until the driver counts them as lost
        time.sleep(0.2)
    for path in sorted((folder / "more").iterdir()):
        shutil.copy2(path, folder / "in")
    task.task_of = lambda plan: plain(replace(plan, service=SLOW))
    run(spark, folder, "running", "pinned")
    hosts = settled_hosts(spark, query)
    spark.stop()
    for host in killed:  # one without partitions is not started again, and nobody else cleans up
        for name in ("unix", "door"):
            remove_socket(Path(host.addresses[name].removeprefix("grpc+unix://")))
    report = {"query": query, "published": published, "before": before, "hosts": hosts}
    (folder / "said.json").write_text(json.dumps(report))


def settled_hosts(spark: SparkSession, query: str) -> list[dict[str, Any]]:
    """Hosts as they are once every partition has been told of in a heartbeat."""
    deadline = time.monotonic() + 30
    while True:
        hosts = hosts_of(spark, query)
        if sum(len(host["partitions"]) for host in hosts) >= PARTITIONS or time.monotonic() > deadline:
            return hosts
        time.sleep(0.2)


if __name__ == "__main__":
    {"redo": redo, "pinned": pinned}.get("".join(sys.argv[2:]), main)(Path(sys.argv[1]))
