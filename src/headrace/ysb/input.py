"""The benchmark's input as files, and the counts that a replay of the files gives."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.generators.ysb import Ads, drawn_events
from headrace.ysb.tables import Counts

WINDOW_MS = 10_000


@dataclass(frozen=True)
class Input:
    """How many events, in how many files; a file is a micro-batch."""

    events: int = 400_000
    files: int = 8
    per_s: float = 4_000.0
    seed: int = 7


def write(plan: Input, ads: Ads, folder: Path) -> None:
    """Writes the events; modification times give the order of the files."""
    folder.mkdir(parents=True)
    each = plan.events // plan.files
    for number in range(plan.files):
        values = drawn_events(ads, number * each, each, plan.per_s, plan.seed)
        path = folder / f"{number:05d}.parquet"
        pq.write_table(pa.table({"value": values}), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def replayed(folder: Path, ads: Ads) -> Counts:
    """The views of each campaign and window, counted one event after the other."""
    campaign_of = dict(zip(ads.ads, ads.campaigns, strict=True))
    counts: Counter[tuple[str, int]] = Counter()
    for path in sorted(folder.glob("*.parquet")):
        for text in pq.read_table(path).column("value").to_pylist():
            event = json.loads(text)
            if event["event_type"] == "view":
                start_ms = int(event["event_time"]) // WINDOW_MS * WINDOW_MS
                counts[campaign_of[event["ad_id"]], start_ms] += 1
    return dict(counts)
