"""The steps of one epoch of one partition after it was logged (`checkpoint.pipeline.Work`).

The host that logged an epoch seals it from memory. Any other host, and every redo, seals it from the log;
both give the same files under the same names.
Threads: one step at a time, except that a step that stalled may come back beside its redo. It then finds
its files written already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.log import LocalLog, LogEntry
from headrace.checkpoint.logged_files import seal_entry, upload
from headrace.checkpoint.restore import read_manifest
from headrace.format.manifest import Manifest
from headrace.format.names import Attempt

IsCurrent = Callable[[], bool]
FromMemory = Callable[[IsCurrent], Manifest | None]  # the manifest with its segments; None: fenced


class EpochCommit:
    """An epoch that is logged."""

    def __init__(
        self,
        home: PartitionHome,
        log: LocalLog,
        manifest: Manifest,
        parent: Manifest | None,
        local: frozenset[str],
        from_memory: FromMemory | None = None,
        is_uploaded: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.version = manifest.version
        self.manifest = manifest  # as it was logged; after the seal, with all its segments
        self._home, self._log, self._parent = home, log, parent
        self._uploaded = frozenset(entry.name for entry in manifest.segments) - local
        self._from_memory, self._is_uploaded = from_memory, is_uploaded

    @classmethod
    def from_log(cls, home: PartitionHome, log: LocalLog, entry: LogEntry) -> EpochCommit:
        """The epoch of an entry that another process left behind."""
        parent = None
        if entry.parent is not None:
            parent = read_manifest(home.blobs, f"{home.prefix}/{entry.parent}")
        home.files.log(entry.local)
        return cls(home, log, entry.manifest, parent, entry.local)

    @property
    def attempt(self) -> Attempt:
        return self.manifest.written_by

    def seal(self, is_current: IsCurrent, *, again: bool) -> None:
        # The rows in memory are used once: the last epoch of an ended query would keep its whole store.
        from_memory, self._from_memory = self._from_memory, None
        if from_memory is not None and not again:
            sealed = from_memory(is_current)
            self.manifest = self.manifest if sealed is None else sealed
        else:
            entry = self._log.read(self.attempt)
            fresh = seal_entry(self._home, self._log, entry)
            self.manifest = replace(entry.manifest, segments=(*entry.manifest.segments, *fresh))

    def upload(self, progressed: Callable[[int], None]) -> None:
        for entry in self.manifest.segments:
            if entry.name not in self._uploaded:
                progressed(entry.size)
                if not self._is_uploaded(entry.name):
                    upload(self._home, self._log, entry)

    def publish(self) -> None:
        self._home.publisher.publish(self.manifest, self._parent)

    def retire(self) -> None:
        """Removes the log entry and its files; readers find the files on shared storage from now on."""
        self._home.files.retire(self.attempt)
        self._log.remove(self.attempt)
        self._log.remove_segments(self.attempt)
