"""A source that brings files at a pace, and the latency of their rows.

A file appears when its last row was created; its rows were created evenly since the file before. A row has
its result when its batch has ended. Spark's own log of the file source names the files of each batch.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from headrace.clock import SYSTEM_CLOCK

_POINTS = 8  # moments of creation per file


@dataclass
class Feeder:
    """Moves files into the folder of a running query."""

    ready: Path
    inbox: Path
    every_ms: float
    came_ms: dict[str, float] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        begun = SYSTEM_CLOCK.now_ms()
        for number, path in enumerate(sorted(self.ready.glob("*.parquet"))):
            due = begun + (number + 1) * self.every_ms
            SYSTEM_CLOCK.sleep_ms(max(0.0, due - SYSTEM_CLOCK.now_ms()))
            if self.over.is_set():
                return
            os.link(path, self.inbox / path.name)
            self.came_ms[path.name] = due


@contextmanager
def feeding(feeder: Feeder) -> Iterator[None]:
    """Feeds in a thread until the block ends, and to the last file if it ends without an error."""
    thread = threading.Thread(target=feeder.run, name="feeder", daemon=True)
    thread.start()
    try:
        yield
    finally:
        feeder.over.set()
        thread.join()


def offset_of(progress: Any) -> int:
    """The newest batch of the file source that was read; -1: none."""
    text = progress.sources[0].endOffset if progress.sources else None
    return -1 if text is None else int(json.loads(text)["logOffset"])


def files_through(checkpoint: Path, offset: int) -> dict[str, int]:
    """The batch of the file source that each file belongs to, up to one of them."""
    files: dict[str, int] = {}
    for log in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry["batchId"] <= offset:
                files[entry["path"].rpartition("/")[2]] = entry["batchId"]
    return files


def batch_of_file(checkpoint: Path, progress: list[Any]) -> dict[str, int]:
    """The batch that read each file, from the log of the file source."""
    batch_at: dict[int, int] = {}
    for batch, offset in sorted((one.batchId, offset_of(one)) for one in progress):
        for at in range(max(batch_at, default=-1) + 1, offset + 1):
            batch_at[at] = batch
    files = files_through(checkpoint, max(batch_at, default=-1))
    return {name: batch_at[at] for name, at in files.items()}


def ended_ms(progress: Any) -> float:
    """When a batch ended, by the clock of this machine."""
    begun = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00"))
    return begun.timestamp() * 1000 + float(progress.durationMs["triggerExecution"])


def latencies_ms(feeder: Feeder, batches: Mapping[str, int], ends_ms: Mapping[int, float]) -> np.ndarray:
    """Result time less time of creation, for some rows of each file that was read."""
    spread = np.arange(_POINTS) / _POINTS * feeder.every_ms
    each = [
        ends_ms[batches[name]] - came + spread
        for name, came in feeder.came_ms.items()
        if batches.get(name) in ends_ms
    ]
    return np.concatenate(each) if each else np.zeros(0)
