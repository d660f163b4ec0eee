"""Protects the input of `bench flowkv`: what its figures mean depends on how batches and windows lie."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from headrace.bench.flowkv import run as flowkv
from headrace.bench.flowkv.input import FINE, FULL, QUICK, Scale, Stretch, write
from headrace.bench.queries import nexmark as queries

SLICE_US, WINDOW_US, DELAY_US = 2_000_000, 10_000_000, 4_000_000
ROW_BYTES = 40  # hash, key nulls, key, flags, count


def written(folder: Path, view: str) -> list[pa.Table]:
    """The rows of each batch."""
    files = sorted((folder / view).iterdir())
    numbers = sorted({path.name.split("-")[0] for path in files})
    return [
        pa.concat_tables([pq.read_table(path) for path in files if path.name.startswith(number)])
        for number in numbers
    ]


def times_us(rows: pa.Table) -> np.ndarray:
    return rows["dateTime"].combine_chunks().cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()


def test_a_fine_batch_lies_in_one_slice(tmp_path: Path) -> None:
    """So that a bid is one row with slices, and five without, in every batch."""
    write(replace(QUICK, fine=FINE), tmp_path, ("fine",))
    batches = written(tmp_path, "fine")
    assert len(batches) == FINE.batches
    assert all(len(np.unique(times_us(rows) // SLICE_US)) == 1 for rows in batches)


def test_every_query_finds_the_streams_it_reads() -> None:
    streams = set(flowkv.all_views(queries.NAMES))
    assert streams == {"bid", "long", "busy", "dense", "fine", "person", "auction"}
    assert all(
        set(flowkv.views_of(name)) <= streams for name in flowkv.queries_of("headrace", queries.NAMES)
    )


@pytest.mark.parametrize("scale", [QUICK, FULL], ids=["quick", "full"])
def test_state_outgrows_memory_and_windows_close(scale: Scale) -> None:
    for stretch in (scale.sparse, scale.busy, scale.dense):
        assert _covers_us(stretch) > WINDOW_US + DELAY_US
    slices = (WINDOW_US + DELAY_US) // SLICE_US
    of_slice = scale.dense.rate * 2 * 92 // 100
    counts = slices * scale.dense.active * (1 - np.exp(-of_slice / scale.dense.active)) * ROW_BYTES
    bidders = scale.sparse.active * ROW_BYTES
    assert min(counts, bidders) > scale.memory_bytes


def test_the_last_line_has_every_ratio() -> None:
    rates = {"headrace": 400.0, "rocksdb": 100.0, "spark": 50.0, "floor": 600.0}
    outcomes = {(side, "q5"): flowkv.Outcome(rate) for side, rate in rates.items()}
    outcomes["headrace", flowkv.SLICED] = flowkv.Outcome(1.0, bytes_per_row=37.0)
    outcomes["headrace", flowkv.PER_WINDOW] = flowkv.Outcome(1.0, bytes_per_row=185.0)
    line = json.loads(flowkv.summarize(FULL, ["q5"], outcomes, Console(quiet=True)))
    floors = {"floor_q5": 6.0, "floor_q5_vs_spark": 12.0}
    assert line["ratios"] == {"q5": 4.0, "q5_vs_spark": 8.0, "slices": 0.2, **floors}
    assert line["failed"] == []
    short = json.loads(flowkv.summarize(QUICK, ["q5"], outcomes, Console(quiet=True)))
    assert short["ratios"] == {"slices": 0.2}
    assert short["rows_per_s"] == line["rows_per_s"]


def _covers_us(stretch: Stretch) -> int:
    return stretch.batches * stretch.events * 1_000_000 // stretch.rate
