"""Batches and records as a driver makes them, for tests of what shows them."""

from __future__ import annotations

from typing import Any

from headrace.coordinator.progress import BatchProgress, total
from headrace.monitor.records import Record
from headrace.wire.contract import Hidden, Span, Summary

START_MS = 1_700_000_000_000


def summary(partition: int, batch: int, **more: Any) -> Summary:
    began = START_MS + batch * 1000
    values: dict[str, Any] = {
        "partition": partition,
        "version": batch,
        "rows_in": 100 * (partition + 1),
        "rows_out": 10,
        "late_rows": 1,
        "keys": 50,
        "memory_bytes": 1 << 20,
        "state_bytes": 1 << 18,
        "written_bytes": 1 << 10,
        "apply_ms": 20.0,
        "finish_ms": 5.0,
        "seal_ms": 0.0,
        "publish_ms": 0.0,
        "watermark_ms": began - 5000,
        "commit": "async",
        "log_ms": 3.0,
        "critical_ms": 4.0,
        "read_ms": 10.0,
        "store": "rmw",
        "segments": 2,
        "spans": (
            Span("read", began, began + 30),
            Span("apply", began + 10, began + 40),
            Span("log", began + 40, began + 44),
        ),
    }
    return Summary(**{**values, **more})


def hidden(batch: int) -> Hidden:
    end = START_MS + batch * 1000 + 100
    return Hidden(batch, 7.0, 30.0, 3.0, (Span("seal", end - 50, end - 43), Span("upload", end - 40, end)))


def progress(batch: int, partitions: int = 2, **more: Any) -> BatchProgress:
    return total(batch, [summary(number, batch, **more) for number in range(partitions)])


def batch_record(batch: int, operator: str = "counts", query: str = "q", **more: Any) -> Record:
    at_ms = START_MS + batch * 1000 + 200
    values = {"query": query, "operator": operator, "progress": progress(batch, **more).to_dict()}
    return {"kind": "batch", "at_ms": at_ms, **values}
