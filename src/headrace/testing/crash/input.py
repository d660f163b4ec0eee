"""The input of a crash round: a pure function of its seed.

One file is one batch. Times advance by `FILE_US` per file and vary by more than the allowed delay. So every
round has windows that close, rows out of order and rows that are late. Amounts are multiples of 1/8, so
that their sums are exact in any order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES, ROWS = 7, 120
FILE_US, JITTER_US, START_US = 20_000_000, 25_000_000, 1_700_000_010_000_000
SCHEMA = "user string, item long, ts timestamp, amount double, bid long, note string"

_USERS = (None, "", "ada", "grace", "barbara", "a much longer name than all the others, to reach the heap")
_NOTES = (None, "a", "bb", "zz", "a note that is long enough to need the heap as well")


@dataclass(frozen=True)
class Row:
    """One input row; `ts_us` is microseconds since 1970."""

    user: str | None
    item: int
    ts_us: int
    amount: float | None
    bid: int
    note: str | None


def batches(seed: int) -> list[list[Row]]:
    """The rows of every file, in the order of the files."""
    rng = np.random.default_rng(seed)
    return [[_row(rng, number) for _ in range(ROWS)] for number in range(FILES)]


def _row(rng: np.random.Generator, file: int) -> Row:
    back = 10 * FILE_US if rng.random() < 0.03 else int(rng.integers(0, JITTER_US))
    return Row(
        user=_USERS[int(rng.integers(len(_USERS)))],
        item=int(rng.integers(-3, 4)),
        ts_us=START_US + (file + 1) * FILE_US - back + int(rng.integers(0, 1000)),
        amount=None if rng.random() < 0.05 else int(rng.integers(-800, 800)) / 8,
        bid=int(rng.integers(-(2**62), 2**62)),
        note=_NOTES[int(rng.integers(len(_NOTES)))],
    )


def write_input(folder: Path, seed: int, files: int = FILES) -> None:
    """Writes the first `files` files, with modification times in their order."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(batches(seed)[:files]):
        path = folder / f"{number:03d}.parquet"
        pq.write_table(_table(rows), path)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


def _table(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            "user": pa.array([row.user for row in rows], pa.string()),
            "item": pa.array([row.item for row in rows], pa.int64()),
            "ts": pa.array([row.ts_us for row in rows], pa.timestamp("us", tz="UTC")),
            "amount": pa.array([row.amount for row in rows], pa.float64()),
            "bid": pa.array([row.bid for row in rows], pa.int64()),
            "note": pa.array([row.note for row in rows], pa.string()),
        }
    )
