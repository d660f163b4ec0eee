"""What a batch did, summed over its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.host.contract import Summary


@dataclass(frozen=True)
class BatchProgress:
    """The sums of one batch of one operator; times are those of the slowest partition."""

    batch: int
    partitions: int
    rows_in: int
    rows_out: int
    late_rows: int
    keys: int
    memory_bytes: int
    state_bytes: int
    written_bytes: int
    apply_ms: float
    finish_ms: float
    seal_ms: float
    publish_ms: float
    watermark_ms: int | None


def total(batch: int, summaries: Iterable[Summary]) -> BatchProgress:
    """Sum the newest summary of each partition."""
    newest = {summary.partition: summary for summary in summaries}
    parts = list(newest.values())
    marks = [part.watermark_ms for part in parts if part.watermark_ms is not None]
    return BatchProgress(
        batch=batch,
        partitions=len(parts),
        rows_in=sum(part.rows_in for part in parts),
        rows_out=sum(part.rows_out for part in parts),
        late_rows=sum(part.late_rows for part in parts),
        keys=sum(part.keys for part in parts),
        memory_bytes=sum(part.memory_bytes for part in parts),
        state_bytes=sum(part.state_bytes for part in parts),
        written_bytes=sum(part.written_bytes for part in parts),
        apply_ms=max((part.apply_ms for part in parts), default=0.0),
        finish_ms=max((part.finish_ms for part in parts), default=0.0),
        seal_ms=max((part.seal_ms for part in parts), default=0.0),
        publish_ms=max((part.publish_ms for part in parts), default=0.0),
        watermark_ms=max(marks, default=None),
    )
