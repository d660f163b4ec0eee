"""Input of the `rmw` benchmark: Parquet files with order and content fixed by a seed.

One micro-batch is `FILES_PER_BATCH` files, so that both cores read. Keys are uniform over `keys`. A loading
phase can first touch every key once, so that the measured batches have state of full size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

FILES_PER_BATCH = 2


@dataclass(frozen=True)
class Phase:
    """`batches` micro-batches of `rows` rows; `load` goes through the keys in order instead of drawing
    them.
    """

    name: str
    batches: int
    rows: int
    load: bool = False


@dataclass(frozen=True)
class Workload:
    """The phases of one workload, over `keys` keys that are integers or strings of `key_bytes` bytes."""

    keys: int
    key_bytes: int | None
    phases: tuple[Phase, ...]
    seed: int = 7

    @property
    def batches(self) -> int:
        return sum(phase.batches for phase in self.phases)

    def span(self, name: str) -> range:
        """The batch numbers of a phase."""
        start = 0
        for phase in self.phases:
            if phase.name == name:
                return range(start, start + phase.batches)
            start += phase.batches
        raise KeyError(name)


Rows = Callable[[Workload, npt.NDArray[np.int64], np.random.Generator], pa.Table]


def write(workload: Workload, folder: Path, table: Rows | None = None) -> None:
    """Writes all files with rows from `table`; their modification times give their order."""
    rows_of = table or _table
    folder.mkdir(parents=True)
    random = np.random.default_rng(workload.seed)
    for number, numbers in enumerate(_batches(workload, random)):
        for part, keys in enumerate(np.array_split(numbers, FILES_PER_BATCH)):
            path = folder / f"{number:05d}-{part}.parquet"
            pq.write_table(rows_of(workload, keys, random), path, compression="lz4")
            stamp = 1_700_000_000 + number * FILES_PER_BATCH + part
            os.utime(path, (stamp, stamp))


def _batches(workload: Workload, random: np.random.Generator) -> Iterator[npt.NDArray[np.int64]]:
    loaded = 0
    for phase in workload.phases:
        for _ in range(phase.batches):
            if phase.load:
                yield np.arange(loaded, loaded + phase.rows) % workload.keys
                loaded += phase.rows
            else:
                yield random.integers(0, workload.keys, phase.rows)


def _table(workload: Workload, numbers: npt.NDArray[np.int64], random: np.random.Generator) -> pa.Table:
    amounts = random.integers(0, 1000, len(numbers))
    return pa.table({"key": _keys(workload, numbers), "amount": pa.array(amounts)})


def _keys(workload: Workload, numbers: npt.NDArray[np.int64]) -> pa.Array:
    if workload.key_bytes is None:
        return pa.array(numbers)
    return pa.array(_spelled(numbers, workload.key_bytes))


def _spelled(numbers: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.bytes_]:
    """Each number as `width` letters that look random and differ for different numbers."""
    lanes = -(-width // 8)
    mixed = np.empty((len(numbers), lanes), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for lane in range(lanes):
            mixed[:, lane] = (numbers.astype(np.uint64) + np.uint64(lane)) * np.uint64(0x9E3779B97F4A7C15)
            mixed[:, lane] ^= mixed[:, lane] >> np.uint64(29)
    letters = (mixed.view(np.uint8)[:, :width] % 26 + ord("a")).astype(np.uint8)
    digits = (numbers[:, None] // 10 ** np.arange(11, -1, -1)) % 10 + ord("0")
    letters[:, :12] = digits
    return np.ascontiguousarray(letters).view(f"S{width}").ravel()
