"""Publishing a version: one put-if-absent, and a read where its outcome is unclear.

Invariants: `publish` returns only when the manifest with this very write id is on storage. It never
overwrites, and settles an unclear put by reading. Threads: any; there is no state beside storage.
"""

from __future__ import annotations

from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.retry import Retry, place_file, put_or_read
from headrace.clock import Clock
from headrace.errors import Fenced, StateMissing
from headrace.format.manifest import Derived, Manifest, decode, encode, succession_problem
from headrace.format.names import blob_name, home_of


class ManifestPublisher:
    """Makes versions of one partition visible."""

    def __init__(self, blobs: Blobs, prefix: str, clock: Clock, retry: Retry | None = None) -> None:
        self._blobs, self._prefix, self._clock = blobs, prefix, clock
        self._retry = retry or Retry()

    def publish(self, manifest: Manifest, parent: Manifest | None = None) -> None:
        """Publishes `manifest`; its segments must be on storage already.

        With `parent` given, the manifest must follow it, and all files must still be on storage: a
        partition that lost files under a running query stops here.
        """
        if parent is not None:
            self._check_files(parent, manifest)
        name, data = f"{self._prefix}/{manifest.name}", encode(manifest)
        stored = put_or_read(self._blobs, name, data, clock=self._clock, retry=self._retry)
        if stored == data:
            return
        other = decode(stored, f"{self._blobs.root}/{name}")
        if other.write_id != manifest.write_id:
            raise Fenced(
                f"version {manifest.version} of {self._prefix} was already published by another writer of "
                f"run {manifest.run}, attempt {manifest.attempt} (write id {other.write_id})",
                hint="let Spark try the task again: the next attempt has a name of its own",
            )

    def place_segment(self, name: str, path: Path) -> None:
        """Moves a finished local file to storage; `name` is relative to the partition."""
        place_file(self._blobs, f"{self._prefix}/{name}", path, clock=self._clock, retry=self._retry)

    def _check_files(self, parent: Manifest, manifest: Manifest) -> None:
        """Raises unless storage has the parent and every segment that the manifest names.

        One listing covers all of them: a running host opens its segments only once.
        """
        problem = succession_problem(parent, manifest)
        if problem:
            raise ValueError(f"{manifest.name} cannot follow {parent.name}: {problem}")
        for name in sorted(self._needed(parent, manifest) - self._stored(parent)):
            raise StateMissing(
                f"{self._blobs.root}/{name} is gone: it was removed while the query was "
                f"running, so version {manifest.version} is not published",
                hint="stop the query, bring the state location back from a backup, and start it again",
            )

    def _needed(self, parent: Manifest, manifest: Manifest) -> set[str]:
        """The files that must be there; those of other partitions are looked for once, after a rescale."""
        derived = parent if isinstance(parent, Derived) else None
        parents = {f"{self._prefix}/{parent.name}"} if derived is None else set(derived.parents)
        names = {blob_name(self._prefix, segment.name) for segment in manifest.segments}
        return parents | {name for name in names if derived is not None or home_of(name) == self._prefix}

    def _stored(self, parent: Manifest) -> set[str]:
        names = [blob_name(self._prefix, segment.name) for segment in parent.segments]
        homes = {home_of(name) for name in (*parent.parents, *names)} if isinstance(parent, Derived) else {}
        return {name for home in {self._prefix, *homes} for name in self._blobs.list(f"{home}/")}
