"""CPU time of both sides of the `stores` benchmark, RocksDB's without the Python binding.

The binding is everything between an operation and RocksDB: building a write batch, converting keys and
values, the loop around an iterator. Its share is that of the batches' time in which no call of RocksDB is
under way. CPU time includes that of background threads.
"""

from __future__ import annotations

import gc
import resource
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.bench.common.turns import Turn
from headrace.bench.stores.rocksdb import RocksReplay
from headrace.bench.stores.sides import Steps, headrace_steps, replayed, turn_of
from headrace.clock import SYSTEM_CLOCK
from headrace.host.process.lifecycle import MEMORY_SETTINGS

WARM_UP = 3  # unmeasured first batches
_PROCESS, _THREAD = resource.RUSAGE_SELF, resource.RUSAGE_THREAD


@dataclass(frozen=True)
class Used:
    """Seconds that batches took, their CPU seconds, those of background threads, those inside RocksDB."""

    wall_s: float
    cpu_s: float
    background_s: float
    inside_s: float = 0.0

    @property
    def binding_share(self) -> float:
        return max(0.0, 1 - self.inside_s / self.wall_s)


@dataclass(frozen=True)
class Cost:
    """The CPU time of one workload."""

    ours: Used
    theirs: Used
    events: int

    @property
    def binding_share(self) -> float:
        """The share of RocksDB's time that is the binding, at least."""
        return self.theirs.binding_share

    @property
    def cpu_us(self) -> tuple[float, float]:
        """CPU time per event in microseconds: of Headrace's store, of RocksDB without the binding."""
        theirs = self.theirs.cpu_s * (1 - self.binding_share) + self.theirs.background_s
        ours = self.ours.cpu_s + self.ours.background_s
        return ours / self.events * 1e6, theirs / self.events * 1e6

    @property
    def ratio(self) -> float:
        ours, theirs = self.cpu_us
        return theirs / ours


def cost_of(name: str, count: int, events: int) -> Cost:
    """Measures one workload, one side after the other."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        with turn_of(headrace_steps, name, Path(folder), count, events) as turn:
            ours = turn.call(_used_by_store)
        with Turn(_Counted(name, Path(folder), count, events), MEMORY_SETTINGS) as turn:
            theirs = turn.call(_used_by_rocksdb)
    return Cost(ours, theirs, (count - WARM_UP) * events)


@dataclass(frozen=True)
class _Counted:
    """Opens a counted database and its batches."""

    name: str
    folder: Path
    count: int
    events: int

    def __call__(self) -> Any:
        gc.disable()
        return closing(_Opened(self))


class _Opened:
    """A counted database with the batches to come."""

    def __init__(self, wanted: _Counted) -> None:
        self.replay = RocksReplay(wanted.folder, counted=True)
        self.steps = replayed(self.replay, wanted.name, wanted.count, wanted.events)

    def close(self) -> None:
        self.steps.close()
        self.replay.close()


def _used_by_store(steps: Steps) -> Used:
    return _used(steps, lambda: 0.0)


def _used_by_rocksdb(opened: _Opened) -> Used:
    return _used(opened.steps, lambda: opened.replay.inside_s)


def _used(steps: Steps, inside: Callable[[], float]) -> Used:
    """Runs all batches; those of the warm-up are not counted."""
    for _ in range(WARM_UP):
        next(steps)()
    wall_ms = steps_s = 0.0
    inside_s, process_s, thread_s = inside(), _cpu_s(_PROCESS), _cpu_s(_THREAD)
    for step in steps:
        begun_ms, begun_s = SYSTEM_CLOCK.monotonic_ms(), _cpu_s(_THREAD)
        step()
        wall_ms += SYSTEM_CLOCK.monotonic_ms() - begun_ms
        steps_s += _cpu_s(_THREAD) - begun_s
    background_s = (_cpu_s(_PROCESS) - process_s) - (_cpu_s(_THREAD) - thread_s)
    return Used(wall_ms / 1000, steps_s, background_s, inside() - inside_s)


def _cpu_s(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime
