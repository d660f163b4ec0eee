"""The steps of one epoch of one partition after it was logged (`checkpoint.pipeline.Work`).

An epoch is sealed from memory by the host that logged it, and from the log by any other and whenever
something went wrong; both give the same files under the same names.
Threads: one step at a time, except that a step that stood still may come back beside its redo. It then
finds its files there, which is fine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from headrace.checkpoint.log import LocalLog, LogEntry
from headrace.checkpoint.restore import read_manifest
from headrace.format.manifest import Manifest
from headrace.format.names import Attempt
from headrace.host.home import PartitionHome
from headrace.host.local import sealed_from, upload

IsCurrent = Callable[[], bool]
FromMemory = Callable[[IsCurrent], Manifest | None]  # the manifest with its segments; None: overtaken


class EpochCommit:
    """An epoch that is logged; `guard` keeps others from opening its local files."""

    def __init__(
        self,
        home: PartitionHome,
        log: LocalLog,
        manifest: Manifest,
        parent: Manifest | None,
        local: frozenset[str],
        guard: AbstractContextManager[object],
        from_memory: FromMemory | None = None,
    ) -> None:
        self.version = manifest.version
        self.manifest = manifest  # as it was logged; after the seal, with all its segments
        self._home, self._log, self._parent, self._guard = home, log, parent, guard
        self._there = frozenset(entry.name for entry in manifest.segments) - local
        self._from_memory = from_memory

    @classmethod
    def from_log(
        cls, home: PartitionHome, log: LocalLog, entry: LogEntry, guard: AbstractContextManager[object]
    ) -> EpochCommit:
        """The epoch of an entry that another process left behind."""
        parent = None
        if entry.parent is not None:
            parent = read_manifest(home.blobs, f"{home.prefix}/{entry.parent}")
        return cls(home, log, entry.manifest, parent, entry.local, guard)

    @property
    def attempt(self) -> Attempt:
        return self.manifest.written_by

    def seal(self, is_current: IsCurrent, *, again: bool) -> None:
        if self._from_memory is not None and not again:
            sealed = self._from_memory(is_current)
            self.manifest = self.manifest if sealed is None else sealed
        else:
            entry = self._log.read(self.attempt)
            fresh = sealed_from(self._log, entry)
            self.manifest = replace(entry.manifest, segments=(*entry.manifest.segments, *fresh))

    def upload(self, heard: Callable[[], None]) -> None:
        for entry in self.manifest.segments:
            if entry.name not in self._there:
                heard()
                upload(self._home, self._log, entry)

    def publish(self) -> None:
        self._home.publisher.publish(self.manifest, self._parent)

    def retire(self) -> None:
        with self._guard:
            self._log.remove(self.attempt)
            self._log.remove_segments(self.attempt)
