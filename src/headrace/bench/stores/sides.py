"""Both sides of the `stores` benchmark as batches that are ready to run; each has its process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path

from headrace.bench.common.turns import Turn
from headrace.bench.stores.events import batches, rows_of, spec_of
from headrace.bench.stores.gadget import accesses_of
from headrace.bench.stores.headrace import StoreDriver
from headrace.bench.stores.rocksdb import MEMORY_BYTES, RocksReplay
from headrace.host.process.lifecycle import MEMORY_SETTINGS

Step = Callable[[], int]  # one batch; everything unmeasured is done before the function is returned
Steps = Generator[Step, None, None]
Side = Callable[[str, Path, int, int], Steps]  # workload, folder, batches, events of each


def turn_of(side: Side, name: str, folder: Path, count: int, events: int) -> Turn:
    """A process with the host's memory settings, which stores of both kinds have in the engine."""
    return Turn(partial(_opened, side, name, folder, count, events), MEMORY_SETTINGS)


def headrace_steps(name: str, folder: Path, count: int, events: int) -> Steps:
    spec = spec_of(name)
    with closing(StoreDriver(spec, folder, MEMORY_BYTES)) as driver:
        for batch in batches(name, count, events):
            rows, watermark_us = rows_of(batch, spec), batch.watermark_us if spec.window else None
            yield partial(driver.batch, rows, watermark_us)


def rocksdb_steps(name: str, folder: Path, count: int, events: int) -> Steps:
    with closing(RocksReplay(folder)) as replay:
        yield from replayed(replay, name, count, events)


def replayed(replay: RocksReplay, name: str, count: int, events: int) -> Steps:
    """The batches of a workload in a database."""
    accesses = accesses_of(name)
    for batch in batches(name, count, events):
        operations = accesses.batch(batch)
        yield partial(replay.batch, operations)


def _opened(side: Side, name: str, folder: Path, count: int, events: int) -> AbstractContextManager[Steps]:
    """Opens a side in its process.

    A measured batch creates objects, very many on RocksDB's side. They are collected between the turns and
    not in the time of a batch.
    """
    gc.disable()
    return closing(side(name, folder, count, events))
