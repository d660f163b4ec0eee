"""CPU of a host batch by batch, with compaction in the host and by a compactor."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.bench.common.cpu import used_s
from headrace.bench.shared.host import Far, Host
from headrace.bench.shared.jobs import Job
from headrace.bench.shared.lab import Lab, State
from headrace.bench.shared.rows import uniform
from headrace.clock import SYSTEM_CLOCK
from headrace.plan.partitions.layouts import first_layout

SAMPLE_MS = 250.0
ROWS = 20_000


@dataclass(frozen=True)
class CpuUse:
    """CPU of the host's process per sample, and of host and compactor together."""

    samples: list[float]
    host_s: float
    total_s: float

    @property
    def unevenness(self) -> float:
        """The 99th percentile over the median."""
        return float(np.percentile(self.samples, 99) / max(1e-3, float(np.median(self.samples))))

    @property
    def figures(self) -> dict[str, float]:
        return {
            "p99_over_median": round(self.unevenness, 2),
            "host_s": round(self.host_s, 2),
            "total_s": round(self.total_s, 2),
        }


def cpu_uses(lab: Lab, job: Job, keys: int, batches: int) -> dict[str, CpuUse]:
    """The same batches with compaction in the host, and by a compactor."""
    uses = {}
    for side, ways in (("local", _nobody), ("remote", _compactor)):
        state = State(lab.folder / f"cpu-{side}", keys, job, first_layout(job.specs[0].partitions))
        with ways(lab.folder) as far, lab.host(state, far) as host:
            uses[side] = _use(host, state, batches)
        shutil.rmtree(state.location, ignore_errors=True)
    return uses


def _use(host: Host, state: State, batches: int) -> CpuUse:
    """Runs batches of uniform keys in a host, one every sample."""
    samples, begun_s = list[float](), used_s()
    for _ in range(batches):
        before_s, started_ms = _own_s(), SYSTEM_CLOCK.monotonic_ms()
        state.next(host, uniform, ROWS)
        SYSTEM_CLOCK.sleep_ms(max(0.0, SAMPLE_MS - (SYSTEM_CLOCK.monotonic_ms() - started_ms)))
        samples.append(_own_s() - before_s)
    return CpuUse(samples, sum(samples), used_s() - begun_s)


def _own_s() -> float:
    """CPU of this process, which is the host's."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def _nobody(_folder: Path) -> Iterator[Far]:
    yield Far()


@contextmanager
def _compactor(folder: Path) -> Iterator[Far]:
    """A compactor's process of its own."""
    secret = folder / "compactor-secret"
    secret.write_text("s" * 64)
    secret.chmod(0o600)
    command = [sys.executable, "-m", "headrace", "compactor", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--secret-file", str(secret)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().removeprefix("compactor at ").strip()
            yield Far(compactors=address, secret=str(secret))
        finally:
            process.kill()
