"""How the time of a batch splits into phases: what it waited for, and what ran behind the next one. Pure.

With synchronous commits a batch waits for sealing and publishing; with `upload` for the seal; with `async`
for the log entry. In both of the latter it may wait for the version before to be on shared storage.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.coordinator.progress import BatchProgress

PHASES = ("open", "read", "apply", "emit", "log", "wait", "seal", "upload", "compaction")
Split = dict[str, float]

COLOURS = {
    "prefetch": "#c8a98a",
    "fetch": "#7fb7b1",
    "open": "#c9c3b5",
    "read": "#8fb8de",
    "apply": "#3b7dd8",
    "emit": "#1f4e9c",
    "log": "#f2a541",
    "wait": "#d9705f",
    "seal": "#9ccb8f",
    "upload": "#5aa56a",
    "compaction": "#b58bc9",
    "spark": "#dde1e8",
}


def waited_ms(batch: BatchProgress) -> Split:
    """Milliseconds of the phases that the batch waited for."""
    split = {
        "open": batch.open_ms,
        "read": batch.read_ms,
        "apply": batch.apply_ms,
        "emit": batch.finish_ms,
        "log": 0.0,
        "wait": batch.wait_previous_ms,
    }
    after = max(0.0, batch.critical_ms - batch.wait_previous_ms)
    if batch.commit == "sync":
        upload = min(batch.publish_ms, after)
        return {**split, "seal": after - upload, "upload": upload}
    log = min(batch.log_ms, after)
    return {**split, "log": log, "seal": after - log if batch.commit == "upload" else 0.0}


def hidden_ms(batch: BatchProgress) -> Split:
    """Milliseconds of the phases that ran beside this batch's results or behind the next batch."""
    waited = waited_ms(batch)
    upload = batch.upload_ms + batch.publish_ms
    return {
        "seal": max(0.0, batch.seal_ms - waited.get("seal", 0.0)),
        "upload": max(0.0, upload - waited.get("upload", 0.0)),
        "compaction": batch.compaction_ms,
    }


def added(splits: Iterable[Split]) -> Split:
    """The sum of several splits."""
    total: Split = {}
    for split in splits:
        for phase, ms in split.items():
            total[phase] = total.get(phase, 0.0) + ms
    return total


def lane(phase: str) -> str:
    """The lane of the timeline that a span of a phase belongs to."""
    return {"publish": "upload", "remote": "compaction"}.get(phase, phase)
