"""Runs a streaming query to its end and returns the times of its batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console


@dataclass(frozen=True)
class Ran:
    """A finished query: rows and milliseconds of each batch, by batch number."""

    query: Any
    rows: dict[int, int]
    took_ms: dict[int, float]

    def rows_per_s(self, skipped: int = 0) -> float:
        """Input rows per second of batch time; batches without input count as time."""
        rows = sum(count for batch, count in self.rows.items() if batch >= skipped)
        took_ms = sum(ms for batch, ms in self.took_ms.items() if batch >= skipped)
        return rows / (took_ms / 1000)


def follow(df: Any, checkpoint: Path, title: str, console: Console, mode: str = "append") -> Ran:
    """Writes the stream to the `noop` sink until its input ends."""
    query = (
        df.writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    rows: dict[int, int] = {}
    took_ms: dict[int, float] = {}
    with console.status(f"{title}: starting") as status:
        done = False
        while not done:
            done = query.awaitTermination(1)
            for progress in query.recentProgress:
                batch, ms = progress.batchId, float(progress.durationMs.get("triggerExecution", 0.0))
                rows[batch] = max(rows.get(batch, 0), progress.numInputRows)
                took_ms[batch] = max(took_ms.get(batch, 0.0), ms)
            if rows:
                latest = max(rows)
                status.update(f"{title}: batch {latest + 1}, {took_ms[latest]:.0f} ms")
    console.print(f"{title}: {sum(took_ms.values()) / 1000:.1f} s in {len(rows)} batches")
    return Ran(query, rows, took_ms)
