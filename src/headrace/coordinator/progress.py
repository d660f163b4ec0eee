"""The progress of one batch, summed over its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from headrace.wire.contract import Hidden, Span, Summary, spans_of
from headrace.wire.state_reads import NO_READS, StateReads, together

SPANS_OF = 4  # partitions whose spans are reported, the slowest ones
PARTS_MAX = 64  # partitions of a batch that are reported one by one, those with most rows first
HIDDEN_PHASES = ("seal", "upload", "publish")
# No batch waits for these, or the wait is part of another phase.
BESIDE_PHASES = ("compaction", "remote", "open", "prefetch", "fetch")


@dataclass(frozen=True)
class PartProgress:
    """What a batch did in one partition."""

    partition: int
    rows_in: int
    keys: int
    memory_bytes: int
    state_bytes: int
    segments: int
    apply_ms: float
    store: str
    verdict: str = ""  # what an observer of the store counted and chose


@dataclass(frozen=True)
class BatchProgress:
    """One batch of one operator: sums over its partitions; times are those of the slowest partition."""

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
    wait_previous_ms: float = 0.0  # wait for ack 2 of the version before
    upload_ms: float = 0.0
    # from the last result to the acknowledgement: the part of the commit that the batch waits for
    critical_ms: float = 0.0
    hidden_ms: float = 0.0  # seal, upload and publish that ran behind the next batch
    prefetch_hits: int = 0  # sessions that ended with all rows read ahead
    prefetch_misses: int = 0  # sessions that ended and were read from disk then
    prefetched: int = 0  # sessions read ahead
    prefetch_in_vain: int = 0  # sessions read ahead and not used
    store: str = ""  # the store of the state; several names while partitions migrate
    open_ms: float = 0.0  # reading the base version, where memory did not have it
    read_ms: float = 0.0  # waiting for the batch's rows
    compaction_ms: float = 0.0  # compactions by the host that ended since the batch before
    remote_compaction_ms: float = 0.0  # the same by compactors, until their output was verified
    segments: int = 0  # files that the version names
    started_ms: int = 0  # when the first partition began, in milliseconds since 1970
    ended_ms: int = 0  # when the last partition was acknowledged
    spans: tuple[Span, ...] = ()  # when each phase ran, in the up to four slowest partitions
    # the coordinator's answer to the batch's first task: its record beside the checkpoint is durable then
    begin_ms: float = 0.0
    parts: tuple[PartProgress, ...] = ()  # the partitions, up to 64 of them
    reads: StateReads = NO_READS  # of state that memory did not have; the waits are part of `apply_ms`
    verdict: str = ""  # what the observer of the partition with most rows counted and chose

    @property
    def seconds(self) -> float:
        """How long the operator took for the batch."""
        return max(self.ended_ms - self.started_ms, 0) / 1000

    @property
    def rows_per_s(self) -> float:
        """Rows that came in, over the operator's time for the batch."""
        return self.rows_in / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        parts = [asdict(part) for part in self.parts]
        return {**values, "spans": list(self.spans), "parts": parts, "reads": asdict(self.reads)}

    @classmethod
    def of(cls, values: dict[str, Any]) -> BatchProgress:
        """The record that `to_dict` wrote; names unknown to this release are left out."""
        known = {field.name for field in fields(cls)}
        mine = {name: value for name, value in values.items() if name in known}
        mine["spans"] = spans_of(values.get("spans"))
        mine["reads"] = StateReads.of(values.get("reads"))
        mine["parts"] = tuple(PartProgress(**part) for part in values.get("parts", ()))
        return cls(**mine)


def total(batch: int, summaries: Iterable[Summary], begin_ms: float = 0.0) -> BatchProgress:
    """Sum the newest summary of each partition."""
    newest = {summary.partition: summary for summary in summaries}
    parts = list(newest.values())
    marks = [part.watermark_ms for part in parts if part.watermark_ms is not None]
    waited = [span for part in parts for span in _waited(part)]
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
        prefetched=sum(part.prefetched for part in parts),
        prefetch_in_vain=sum(part.prefetch_in_vain for part in parts),
        store=", ".join(sorted({part.store for part in parts if part.store})),
        verdict=max(parts, key=lambda part: part.rows_in).verdict if parts else "",
        open_ms=max((part.open_ms for part in parts), default=0.0),
        read_ms=max((part.read_ms for part in parts), default=0.0),
        compaction_ms=max((_phase_ms(part, "compaction") for part in parts), default=0.0),
        remote_compaction_ms=max((_phase_ms(part, "remote") for part in parts), default=0.0),
        segments=sum(part.segments for part in parts),
        started_ms=min((span.start_ms for span in waited), default=0),
        ended_ms=max((span.end_ms for span in waited), default=0),
        spans=_slowest(parts),
        begin_ms=round(begin_ms, 3),
        parts=_parts(parts),
        reads=together([part.reads for part in parts]),
    )


def _waited(part: Summary) -> list[Span]:
    """The spans of phases that the batch waited for."""
    hidden = () if part.commit == "sync" else HIDDEN_PHASES
    return [span for span in part.spans or () if span.phase not in (*hidden, *BESIDE_PHASES)]


def _phase_ms(part: Summary, phase: str) -> float:
    return float(sum(s.end_ms - s.start_ms for s in part.spans or () if s.phase == phase))


def _slowest(parts: Sequence[Summary]) -> tuple[Span, ...]:
    """The spans of the slowest partitions; those of less than a millisecond are left out."""

    def lasted(part: Summary) -> int:
        waited = _waited(part)
        return max((s.end_ms for s in waited), default=0) - min((s.start_ms for s in waited), default=0)

    slowest = sorted(parts, key=lasted, reverse=True)[:SPANS_OF]
    return tuple(span for part in slowest for span in part.spans or () if span.end_ms > span.start_ms)


def _parts(parts: Sequence[Summary]) -> tuple[PartProgress, ...]:
    largest = sorted(parts, key=lambda part: part.rows_in, reverse=True)[:PARTS_MAX]
    return tuple(
        PartProgress(
            partition=part.partition,
            rows_in=part.rows_in,
            keys=part.keys,
            memory_bytes=part.memory_bytes,
            state_bytes=part.state_bytes,
            segments=part.segments,
            apply_ms=part.apply_ms,
            store=part.store,
            verdict=part.verdict,
        )
        for part in sorted(largest, key=lambda part: part.partition)
    )


def hidden_ms(summary: Summary) -> float:
    """The time of a commit's steps that ran behind the next batch, as far as reported."""
    if summary.commit == "sync":
        return 0.0
    return round(summary.seal_ms + summary.upload_ms + summary.publish_ms, 3)


def with_hidden(summary: Summary, hidden: Hidden) -> Summary:
    """The summary with the step times of a commit that ended after the summary was sent."""
    return replace(
        summary,
        seal_ms=hidden.seal_ms,
        upload_ms=hidden.upload_ms,
        publish_ms=hidden.publish_ms,
        spans=(*(summary.spans or ()), *hidden.spans),
    )
