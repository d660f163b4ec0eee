"""States that are built once. Every part of a run works on links to their files.

    <folder>/<name>/files      the state location
    <folder>/<name>/batches    the number of its batches; written last

Invariants: a state without its number of batches is not finished, and is built anew. Files on a state
location never change, so a link is as good as a copy, and a part leaves the states as they were built. The
name has everything that the rows depend on.
Threads: one process at a time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.bench.shared.host import Far
from headrace.bench.shared.jobs import Job
from headrace.bench.shared.lab import Lab, State
from headrace.plan.partitions.layouts import first_layout

FOLDER = "headrace-shared-states"


@dataclass(frozen=True)
class Kept:
    """The states in a folder."""

    lab: Lab
    folder: Path

    @contextmanager
    def state(self, name: str, job: Job, keys: int, far: Far | None = None) -> Iterator[State]:
        """A state of its own with a row of every key; its changes are gone at the end."""
        partitions = job.specs[0].partitions
        source = self.folder / f"{name}-{keys}-{partitions}"
        if not (source / "batches").exists():
            self._build(source, job, keys, far)
        copy = self.lab.new_folder()
        shutil.copytree(source / "files", copy, copy_function=os.link)
        batches = int((source / "batches").read_text())
        try:
            yield State(copy, keys, job, first_layout(partitions), batches)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _build(self, source: Path, job: Job, keys: int, far: Far | None) -> None:
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        state = self.lab.state(source / "files", job, keys, far)
        (source / "batches").write_text(str(state.batches))
