"""A store under test with its files: does the host's part around it, and can end at any step.

Invariant: `manifest` is the last settled version, and `reopen` uses nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.blob.files import FileBlobs
from headrace.checkpoint.epoch_files import PublishedFiles
from headrace.checkpoint.home import PartitionHome
from headrace.clock import SystemClock
from headrace.compactor.work import merge_of
from headrace.format.manifest import Manifest
from headrace.host.compaction.place import JobPlace
from headrace.host.compaction.remote import request_of
from headrace.operators.open import kinds_of, open_store
from headrace.plan.spec import OperatorSpec
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files, Sections
from headrace.store.base.jobs import Compaction, Job, Taken
from headrace.store.base.share import FixedShare
from headrace.store.merges import MERGES
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.testing.contracts.store_model import Row, batch_of, rows_of
from headrace.wire.compaction import CompactionRequest
from headrace.wire.contract import Ticket

Opener = Callable[..., Store]
BLOCK_ROWS = 64


class QuickBlobs(FileBlobs):
    """Files that are not synced to the disk: a lab interrupts epochs, never the machine."""

    def put_file(self, name: str, path: Path) -> None:
        target = self._path(name)
        self._make_parent(target)
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target)
        path.unlink()


@dataclass(frozen=True)
class FlushedBy(Files):
    """Files of a store that writes nothing but segments."""

    flush: Callable[[FileKind, Sections], Segment]

    def write(self, kind: FileKind, sections: Sections) -> Segment:
        return self.flush(kind, sections)


@dataclass
class StoreLab:
    """One partition's store over a folder."""

    spec: OperatorSpec
    folder: Path
    share_bytes: int = 64 << 20
    opener: Opener = open_store
    manifest: Manifest | None = None
    epochs: int = 0  # begun epochs, settled or not: the files of each have their own names
    store: Store = field(init=False)
    files: PublishedFiles = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        blobs = QuickBlobs(self.folder)
        self.home = PartitionHome.of(blobs, "p", SystemClock())
        self.reopen()

    @property
    def ticket(self) -> Ticket:
        base = None if self.manifest is None else self.manifest.version
        return Ticket("start", "q", self.spec, 0, self.epochs, base, 1, str(self.folder), 3)

    def reopen(self) -> None:
        """Drops the store in memory and opens the last settled version."""
        manifest = self.manifest
        store_name = "" if manifest is None else manifest.store
        self.store = self.opener(
            spec=self.spec,
            budget=FixedShare(self.share_bytes),
            files=self._new_files(),
            segments=[]
            if manifest is None
            else self.home.open_segments(manifest, kinds_of(self.spec, store_name)),
            watermark_us=None if manifest is None else manifest.closed_through_us,
            known_keys=0 if manifest is None else manifest.keys,
            recorded=store_name,
        )

    def _new_files(self) -> PublishedFiles:
        self.files = PublishedFiles(self.home, self.ticket, 1)
        return self.files

    def apply(self, rows: Iterable[Row]) -> None:
        listed = list(rows)
        for start in range(0, len(listed), BLOCK_ROWS):
            self.store.apply(batch_of(self.spec, listed[start : start + BLOCK_ROWS]))

    def epoch(self, rows: Iterable[Row], watermark_us: int | None) -> list[tuple[Any, ...]]:
        """One whole epoch; returns the emitted results."""
        self.begin()
        self.apply(rows)
        write = self.store.gather(watermark_us)
        emitted = rows_of(self.store.results(watermark_us))
        self.settle(write(), watermark_us)
        return emitted

    def begin(self) -> None:
        self.epochs += 1
        self.store.files = self._new_files()
        self.store.begin_epoch(self.home)

    def broken(self, rows: Iterable[Row], watermark_us: int | None, steps: int) -> None:
        """An epoch that ends after `steps` steps: apply, gather, some results, the write; then reopens."""
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
        for segment in store.take_unnamed():
            self.files.adopt(segment)
        self.files.keep(lambda file: store.is_live(file, watermark_us))
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
            store=self.store.stored_as,
        )
        self.store.settle(files, watermark_us)

    def compact(self) -> bool:
        """Runs the next compaction, as the host does in the background; False: there is none."""
        job = None if self.store.keeps_files else self.store.maintenance()
        if job is None:
            return False
        self._replace(job, self._elsewhere(job).run(self.home, threading.Event()))
        return True

    def _elsewhere(self, job: Job) -> Job:
        """The same job as a compactor gets it, where it is data."""
        if not isinstance(job, Compaction) or job.merge is None:
            return job
        place = JobPlace(self.ticket, 1, self.store.stored_as)
        request = json.loads(json.dumps(request_of(self.home, job, job.merge, place).to_json()))
        merge = merge_of(CompactionRequest.of(request))
        return Compaction.of(job.inputs, merge, MERGES[merge.name])

    def move(self) -> bool:
        """Runs the next move of a store that changes its layout; False: there is none."""
        job = self.store.maintenance() if self.store.keeps_files else None
        return job is not None and job.take(job.run(self.home, threading.Event())) is Taken.NOW

    def _replace(self, job: Job, written: list[SegmentFile]) -> None:
        files = job.replace_in(self.store.segments, written)
        assert files is not None, "a compaction names neighbours of the committed version"
        self.begin()
        for segment in written:
            self.files.adopt(segment)
        self._settle(files, self.store.watermark_us)

    def names(self) -> set[str]:
        """The files of the settled version."""
        return set() if self.manifest is None else {entry.name for entry in self.manifest.segments}

    def content(self) -> dict[str, bytes]:
        return {name: self.home.files.path(name).read_bytes() for name in self.names()}
