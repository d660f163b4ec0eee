"""A store under test whose files are elsewhere: no local paths, ranges only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.checkpoint.home import PartitionHome
from headrace.clock import SystemClock
from headrace.files.fetch import Fetcher
from headrace.files.space import PartialSpace
from headrace.testing.contracts.store_lab import QuickBlobs, StoreLab
from headrace.testing.faults.measured_blobs import MeasuredBlobs

NARROW_BYTES = 1 << 13  # of ranges: less than most reads need
Room = Callable[[Path], PartialSpace]
ROOMS: dict[str, Room] = {
    "disk": lambda folder: PartialSpace(folder, 1 << 30, Fetcher(4)),
    "narrow disk": lambda folder: PartialSpace(folder, NARROW_BYTES, Fetcher(4)),
    "memory": lambda folder: PartialSpace(None, NARROW_BYTES, Fetcher(4)),
}


@dataclass
class RemoteLab(StoreLab):
    """A store whose files are elsewhere; `reopen` is a start on an empty machine."""

    room: Room = ROOMS["disk"]
    blobs: MeasuredBlobs = field(init=False)

    def __post_init__(self) -> None:
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(parents=True, exist_ok=True)
        self.blobs = MeasuredBlobs(QuickBlobs(elsewhere))
        self.home = PartitionHome.of(self.blobs, "p", SystemClock(), space=self.room(self.folder))
        self.reopen()
