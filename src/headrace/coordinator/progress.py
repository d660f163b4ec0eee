"""What a batch did, summed over its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.host.contract import Hidden, Summary


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
    commit: str = "sync"
    log_ms: float = 0.0
    wait_previous_ms: float = 0.0  # for the version before to be on shared storage
    upload_ms: float = 0.0
    critical_ms: float = 0.0  # from the last result to the acknowledgement: what the batch waited for
    hidden_ms: float = 0.0  # seal, upload and publish, done while the next batch ran
    prefetch_hits: int = 0  # sessions that ended, whose rows had been read with those of another one
    prefetch_misses: int = 0  # reads because a session ended, and sessions that were read for nothing
    store: str = ""  # where the state is; several names while partitions move from memory


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
        commit=parts[0].commit if parts else "sync",
        log_ms=max((part.log_ms for part in parts), default=0.0),
        wait_previous_ms=max((part.wait_previous_ms for part in parts), default=0.0),
        upload_ms=max((part.upload_ms for part in parts), default=0.0),
        critical_ms=max((part.critical_ms for part in parts), default=0.0),
        hidden_ms=max((hidden_ms(part) for part in parts), default=0.0),
        prefetch_hits=sum(part.prefetch_hits for part in parts),
        prefetch_misses=sum(part.prefetch_misses for part in parts),
        store=", ".join(sorted({part.store for part in parts if part.store})),
    )


def hidden_ms(summary: Summary) -> float:
    """What a commit did behind the next batch, as far as it is known."""
    if summary.commit == "sync":
        return 0.0
    return round(summary.seal_ms + summary.upload_ms + summary.publish_ms, 3)


def told_later(summary: Summary, hidden: Hidden) -> Summary:
    """The summary of a version whose commit has ended after it was told."""
    return replace(
        summary, seal_ms=hidden.seal_ms, upload_ms=hidden.upload_ms, publish_ms=hidden.publish_ms
    )
