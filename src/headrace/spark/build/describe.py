"""An operator as the JVM reads it: one JSON text that travels in the plan."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession

from headrace.plan.options import Options
from headrace.plan.partitions.groups import GROUP_BITS, GROUPS
from headrace.plan.spec import KEYLESS_HASH, OperatorSpec
from headrace.plan.times import TIMES
from headrace.plan.values.parsers import parse_bytes
from headrace.spark.driver.driver import RunningCoordinator
from headrace.spark.task.task import TaskPlan, host_settings

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PACKET_ROWS = 1 << 15
_PACKET_BYTES = 4 << 20
_TASK_BYTES = 16 << 20  # of all packets that a task of the stage below is filling
_FOR_GOOD_MS = 1 << 60  # behind any watermark


def described(
    spark: SparkSession, plan: TaskPlan, coordinator: RunningCoordinator, options: Options
) -> str:
    """The operator's JSON; it holds the secret, so no plan prints it."""
    spec = plan.spec
    return json.dumps(
        {
            "name": spec.name,
            "uid": plan.uid,
            "partitions": spec.partitions,
            "keyless_group": KEYLESS_HASH >> (64 - GROUP_BITS) & (GROUPS - 1),
            "nodes": list(plan.times.nodes),
            "hold_ms": hold_ms(spec),
            "windowed": bool(spec.delays_ms) and (spec.window is not None or spec.work.closes_by_watermark),
            "timing": options.timing,
            "coordinator": coordinator.door,
            "secret": plan.secret,
            "host_per": plan.host_per,
            "watch_ms": round(TIMES.host_watch_s * 1000),
            "hung_ms": round(TIMES.host_hung_s * 1000),
            "host": _without_machine(plan),
            "operator": {
                "spec": spec.to_json(),
                "location": plan.location,
                "new": plan.new,
                "rescales": plan.rescales,
                "retain": plan.retain,
                "commit": plan.commit,
                "times": asdict(plan.times),
                "prefetch": asdict(plan.prefetch),
            },
            **_packets(spark),
            **_python(spark),
        }
    )


def hold_ms(spec: OperatorSpec) -> int:
    """How far behind its watermark the operator may still emit, for operators of Spark above it."""
    if spec.work.hold_us is None:
        return _FOR_GOOD_MS
    if spec.window is None:
        return -(-spec.work.hold_us // 1000)
    spread_us = spec.window.width_us if spec.work.has_sides or spec.work.returns_rows else 0
    return -(-(spec.window.lateness_us + spread_us) // 1000)


def _without_machine(plan: TaskPlan) -> dict[str, Any]:
    """Settings of the host; the JVM adds machine and secret."""
    settings: dict[str, Any] = json.loads(host_settings(plan, "").to_json())
    del settings["machine"], settings["secret"]
    return settings


def _packets(spark: SparkSession) -> dict[str, dict[str, int]]:
    """How many rows and bytes a packet has at most, by Spark's sizes of Arrow batches."""
    rows = int(spark.conf.get(ARROW_ROWS, "10000") or 0)
    written = str(spark.conf.get(ARROW_BYTES, "64m"))
    nbytes = _PACKET_BYTES if written.startswith("-") else min(parse_bytes(written), _PACKET_BYTES)
    rows = min(rows, _PACKET_ROWS) if rows > 0 else _PACKET_ROWS
    return {"packets": {"rows": rows, "bytes": nbytes, "total_bytes": _TASK_BYTES}}


def _python(spark: SparkSession) -> dict[str, Any]:
    """The executors' Python, as Spark's own workers are started."""
    context: Any = spark.sparkContext
    return {
        "python": context.pythonExec,
        "environment": {str(name): str(value) for name, value in context.environment.items()},
        "python_files": [str(name) for name in context._python_includes],
    }
