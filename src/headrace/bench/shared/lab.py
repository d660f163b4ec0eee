"""What every measurement of shared storage starts from: sizes, states, hosts on empty machines."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.bench.shared.host import Batch, Far, Host
from headrace.bench.shared.jobs import Job
from headrace.plan.ids import new_write_id
from headrace.plan.partitions.layouts import Layout, first_layout
from headrace.row.arrays import I64

LOAD_ROWS = 1_000_000
Keys = Callable[[np.random.Generator, int, int], I64]


@dataclass(frozen=True)
class Size:
    """What is measured."""

    small_keys: int
    partitions: int
    repeats: int
    touched: tuple[int, ...]  # keys of a first batch
    commits: int
    batches: int  # with a cache of a tenth
    cpu_batches: int
    memory_bytes: int
    opened_keys: int  # of each of three operators that are only opened, where they are small
    factor: int = 100


QUICK = Size(20_000, 4, 1, (1_000, 10_000), 20, 4, 120, 128 << 20, 1_000)
FULL = Size(350_000, 4, 3, (1_000, 10_000, 100_000), 300, 20, 400, 256 << 20, 20_000)


@dataclass
class State:
    """A state on the disk, its job, its layouts, and its next batch."""

    location: Path
    keys: int
    job: Job
    layouts: Sequence[Layout]
    batches: int = 0

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.location.rglob("*") if path.is_file())

    def next(self, host: Host, draw: Keys, n: int) -> Batch:
        """Runs the next batch, with keys that only its number decides."""
        batch = host.batch(self.batches, draw(np.random.default_rng(self.batches), self.keys, n))
        self.batches += 1
        return batch

    def load(self, host: Host) -> None:
        """Begins with a row of every key."""
        for first in range(0, self.keys, LOAD_ROWS):
            keys = np.arange(first, min(self.keys, first + LOAD_ROWS), dtype=np.int64)
            host.batch(self.batches, keys)
            self.batches += 1


class Lab:
    """A folder with states, and empty machines beside it."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self.folder, self._memory_bytes, self._starts = folder, memory_bytes, 0

    def new_folder(self) -> Path:
        """The path of a folder that does not exist yet."""
        self._starts += 1
        return self.folder / f"local-{self._starts}"

    def state(self, location: Path, job: Job, keys: int, far: Far | None = None) -> State:
        """A new state, with a row of every key."""
        state = State(location, keys, job, first_layout(job.specs[0].partitions))
        with self.host(state, far or Far()) as host:
            state.load(host)
        return state

    @contextmanager
    def host(self, state: State, far: Far) -> Iterator[Host]:
        """A new start on an empty machine, which is given up at the end."""
        local = self.new_folder()
        service = far.open(self._memory_bytes, local)
        host = Host(state.job, state.location, service, new_write_id(), state.layouts)
        try:
            yield host
        finally:
            host.close()
            shutil.rmtree(local, ignore_errors=True)
