"""A store under test and its files: what the host does around it, and any step can be the last one.

Invariant: `manifest` is the last version that was settled; `reopen` knows nothing else.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.blob.files import FileBlobs
from headrace.checkpoint.publish import ManifestPublisher
from headrace.clock import SystemClock
from headrace.format.manifest import Manifest
from headrace.host.contract import Ticket
from headrace.host.home import PartitionHome, Sealer
from headrace.host.upkeep import Compacted, Upkeep
from headrace.spec import OperatorSpec
from headrace.store.budget import MemoryBudget
from headrace.store.contract import Store
from headrace.store.migrate import MovingStore, stored_as
from headrace.store.open import kinds_of, open_store
from headrace.store.segment import Segment
from headrace.testing.store_model import Row, batch_of, rows_of

Opener = Callable[..., Store]
BLOCK_ROWS = 64


class QuickBlobs(FileBlobs):
    """Files that are not flushed to the disk: a lab breaks epochs off, never the machine."""

    def put_file(self, name: str, path: Path) -> None:
        target = self._path(name)
        self._make_parent(target)
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target)
        path.unlink()


@dataclass
class StoreLab:
    """One partition's store over a folder."""

    spec: OperatorSpec
    folder: Path
    share_bytes: int = 64 << 20
    opener: Opener = open_store
    manifest: Manifest | None = None
    epochs: int = 0  # begun, settled or not: each one's files have names of their own
    store: Store = field(init=False)
    sealer: Sealer = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        blobs = QuickBlobs(self.folder)
        publisher = ManifestPublisher(blobs, "p", SystemClock())
        self.home = PartitionHome(blobs, "p", publisher, itertools.count())
        self.reopen()

    @property
    def ticket(self) -> Ticket:
        base = None if self.manifest is None else self.manifest.version
        return Ticket("start", "q", self.spec, 0, self.epochs, base, 1, str(self.folder), 3)

    def reopen(self) -> None:
        """Forget the store in memory, and open the last settled version."""
        manifest = self.manifest
        said = "" if manifest is None else manifest.store
        budget = MemoryBudget(1, share_min=self.share_bytes)
        self.store = self.opener(
            spec=self.spec,
            budget=budget,
            seal=self._sealer(),
            segments=[]
            if manifest is None
            else self.home.open_segments(manifest, kinds_of(self.spec, said)),
            watermark_us=None if manifest is None else manifest.closed_through_us,
            known_keys=0 if manifest is None else manifest.keys,
            said=said,
        )

    def _sealer(self) -> Sealer:
        self.sealer = Sealer(self.home, self.ticket, 1)
        return self.sealer

    def apply(self, rows: Iterable[Row]) -> None:
        held = list(rows)
        for start in range(0, len(held), BLOCK_ROWS):
            self.store.apply(batch_of(self.spec, held[start : start + BLOCK_ROWS]))

    def epoch(self, rows: Iterable[Row], watermark_us: int | None) -> list[tuple[Any, ...]]:
        """One whole epoch; what it emitted."""
        self.begin()
        self.apply(rows)
        write = self.store.gather(watermark_us)
        emitted = rows_of(self.store.results(watermark_us))
        self.settle(write(), watermark_us)
        return emitted

    def begin(self) -> None:
        self.epochs += 1
        self.store.seal = self._sealer()
        if isinstance(self.store, MovingStore) and self.store.is_ready:
            self.store.switch(self.home.stage)

    def broken(self, rows: Iterable[Row], watermark_us: int | None, steps: int) -> None:
        """An epoch that ends after so many steps: apply, gather, some results, the write; then reopen."""
        self.begin()
        self.apply(rows)
        if steps > 0:
            write = self.store.gather(watermark_us)
            if steps > 1:
                next(iter(self.store.results(watermark_us)), None)
            if steps > 2:
                write()
        self.reopen()

    def settle(self, written: list[Segment], watermark_us: int | None) -> None:
        store = self.store
        if isinstance(store, MovingStore):
            for segment in store.named():
                self.home.adopt(segment, self.ticket, 1)
        self.sealer.name(lambda file: store.is_live(file, watermark_us))
        files = [*store.segments, *written]
        self._settle([file for file in files if store.is_live(file, watermark_us)], watermark_us)

    def _settle(self, files: list[Segment], watermark_us: int | None) -> None:
        self.manifest = self.home.manifest(
            ticket=self.ticket,
            run=1,
            base=self.manifest,
            segments=files,
            closed_through_us=watermark_us,
            frontiers_ms=(),
            late_rows=0,
            keys=self.store.keys_after(watermark_us),
            store=stored_as(self.store),
        )
        self.store.settle(files, watermark_us)

    def compact(self) -> bool:
        """What the host does in the background, if the store asks for it."""
        compaction = self.store.compaction()
        if compaction is None:
            return False
        upkeep = Upkeep()
        place: Any = _Place(self.home)
        compacted: Compacted = upkeep._compact(place, compaction)
        upkeep.close()
        files = compacted.replace_in(self.store.segments)
        assert files is not None, "a compaction names neighbours of the committed version"
        self.begin()
        if compacted.output is not None:
            self.home.adopt(compacted.output, self.ticket, 1)
        self._settle(files, self.store.watermark_us)
        return True

    def move(self) -> bool:
        """What the host does in the background for a store that changes its layout."""
        move = self.store.move() if isinstance(self.store, MovingStore) else None
        if move is None or not isinstance(self.store, MovingStore):
            return False
        self.store.take(move, move.write(self.home.stage, threading.Event()))
        return True

    def names(self) -> set[str]:
        """The files of the settled version."""
        return set() if self.manifest is None else {entry.name for entry in self.manifest.segments}

    def content(self) -> dict[str, bytes]:
        return {name: self.home.path_of(name).read_bytes() for name in self.names()}


@dataclass(frozen=True)
class _Place:
    """As much of a partition as a compaction needs."""

    home: PartitionHome
