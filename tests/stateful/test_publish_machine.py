"""Protects versions against everything at once: faulty storage, crashes, replays, zombies, collection.

The model is a plain dict per committed version. Each attempt at a batch writes other values, so that a
restore which mixes attempts, or takes the wrong one, cannot go unnoticed.
"""

from __future__ import annotations

import contextlib
import json
import zlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.blob.base import Blobs
from headrace.blob.memory import MemoryBlobs
from headrace.blob.retry import Retry, put_or_read
from headrace.checkpoint.collect import collect
from headrace.checkpoint.publish import ManifestPublisher
from headrace.checkpoint.restore import read_manifest, restore
from headrace.checkpoint.runs import claim_run
from headrace.errors import ReadBack, TryAgain
from headrace.format.manifest import Manifest, SegmentEntry
from headrace.format.names import segment_name
from headrace.testing import FaultyBlobs, ManualClock, seeded_outcomes

QUERY, PREFIX = "q", "q/o/p0000"
RETRY = Retry(tries=3)
State = dict[str, int]


def read_state(blobs: MemoryBlobs, manifest: Manifest | None) -> State:
    """The rows of a version: of two for one key, the later segment's."""
    rows: State = {}
    for segment in manifest.segments if manifest else ():
        data = blobs.get(f"{PREFIX}/{segment.name}")
        assert zlib.crc32(data) == segment.crc
        rows |= json.loads(data)
    return rows


class Versions(RuleBasedStateMachine):
    """One partition through batches, with a driver that forgets and storage that lies about replies."""

    @initialize(seed=st.integers(0, 2**32), rate=st.sampled_from([0.0, 0.1, 0.4]))
    def start(self, seed: int, rate: float) -> None:
        self.storage = MemoryBlobs()
        self.faulty = FaultyBlobs(self.storage, seeded_outcomes(seed, rate))
        self.clock = ManualClock()
        self.application, self.attempt, self.value, self.zombies = 0, 0, 0, 1000
        self.run = claim_run(self.storage, QUERY, "0")
        self.batch = 0
        self.model: dict[int, State] = {}  # what each committed, retained version holds
        self.manifests: dict[int, Manifest] = {}
        self.known: dict[str, Manifest] = {}

    @property
    def base(self) -> int | None:
        return max(self.model, default=None)

    @rule(
        keys=st.sets(st.sampled_from("abcde")),
        compacts=st.booleans(),
        is_told=st.booleans(),
        met=st.booleans(),
    )
    def run_batch(self, keys: set[str], compacts: bool, is_told: bool, met: bool) -> None:
        """One task attempt; `is_told` False: all went well, but the driver died before it knew.

        `met`: a collector runs between its segment and its manifest.
        """
        self.attempt += 1
        try:
            parent = restore(self.faulty, PREFIX, self.base)
            rows = read_state(self.storage, parent)
            manifest, after = self._commit(parent, rows, keys, compacts, met)
        except (TryAgain, ReadBack):
            return
        if is_told:
            self.model[self.batch], self.manifests[self.batch] = after, manifest
            self.batch += 1

    @rule(keys=st.sets(st.sampled_from("abcde")))
    def crash_before_publishing(self, keys: set[str]) -> None:
        self.attempt += 1
        self._write(dict.fromkeys(keys, -1), self.run, self.attempt, self.batch)

    @rule()
    def skip_a_batch(self) -> None:
        self.batch += 1

    @rule()
    def restart_the_application(self) -> None:
        self.application += 1
        try:
            run = claim_run(self.faulty, QUERY, str(self.application), clock=self.clock, retry=RETRY)
        except (TryAgain, ReadBack):
            run = claim_run(self.storage, QUERY, str(self.application))
        assert run > self.run
        self.run, self.attempt, self.known = run, 0, {}

    @rule(late=st.sampled_from([0, 1]))
    def a_zombie_publishes(self, late: int) -> None:
        """A host of an earlier application goes on, with a batch that a newer run has or will have done."""
        version, zombie_run = self.batch - late, self.run - 1
        committed = self.manifests.get(version)
        if zombie_run == 0 or version < 0 or (committed and committed.run <= zombie_run):
            return
        self.zombies += 1
        entry = self._write({"zombie": 1}, zombie_run, self.zombies, version)
        zombie = self._manifest(None, (entry,), version, run=zombie_run, attempt=self.zombies)
        ManifestPublisher(self.storage, PREFIX, self.clock).publish(zombie)

    @rule(retain=st.integers(1, 3))
    def collect_garbage(self, retain: int) -> None:
        self._collect(retain)

    def _collect(self, retain: int) -> None:
        if self.base is None:
            return
        kept = sorted(self.model)[-retain:]
        with contextlib.suppress(TryAgain, ReadBack):  # whatever went by then, the retained must be whole
            collect(self.faulty, PREFIX, self.base, retain, known=self.known)
        self.model = {version: self.model[version] for version in kept}

    @invariant()
    def every_retained_version_is_whole(self) -> None:
        for version, expected in self.model.items():
            manifest = restore(self.storage, PREFIX, version)
            assert manifest == self.manifests[version]
            assert read_state(self.storage, manifest) == expected

    @rule()
    def nothing_but_the_retained_remains(self) -> None:
        """Once storage behaves, one collection leaves what the base needs and what is newer."""
        if self.base is None:
            return
        collect(self.storage, PREFIX, self.base, retain=1)
        self.model = {self.base: self.model[self.base]}
        manifests = [
            read_manifest(self.storage, name) for name in self.storage.list(f"{PREFIX}/manifests/")
        ]
        assert min(manifest.version for manifest in manifests) == self.base
        named = {f"{PREFIX}/{segment.name}" for manifest in manifests for segment in manifest.segments}
        newest = f"{PREFIX}/segments/v{self.base:012d}"
        for name in self.storage.list(f"{PREFIX}/segments/"):
            assert name in named or name >= newest, name

    def _commit(
        self, parent: Manifest | None, rows: State, keys: set[str], compacts: bool, met: bool
    ) -> tuple[Manifest, State]:
        changed = {}
        for key in sorted(keys):
            self.value += 1
            changed[key] = self.value
        after = rows | changed
        rows = after if compacts else changed
        entry = self._write(rows, self.run, self.attempt, self.batch, self.faulty)
        if met:
            self._collect(retain=2)
        before = parent.segments if parent and not compacts else ()
        manifest = self._manifest(parent, (*before, entry), self.batch, run=self.run, attempt=self.attempt)
        ManifestPublisher(self.faulty, PREFIX, self.clock, RETRY).publish(manifest, parent)
        return manifest, after

    def _write(
        self, rows: State, run: int, attempt: int, version: int, blobs: Blobs | None = None
    ) -> SegmentEntry:
        data, name = json.dumps(rows).encode(), segment_name(version, run, attempt, 0)
        put_or_read(blobs or self.storage, f"{PREFIX}/{name}", data, clock=self.clock, retry=RETRY)
        return SegmentEntry(name, len(data), len(rows), 0, 0, zlib.crc32(data))

    def _manifest(
        self,
        parent: Manifest | None,
        segments: tuple[SegmentEntry, ...],
        version: int,
        *,
        run: int,
        attempt: int,
    ) -> Manifest:
        self.value += 1
        return Manifest(
            write_id=f"w{self.value}",
            version=version,
            parent_write_id=parent.write_id if parent else None,
            parent_version=parent.version if parent else None,
            run=run,
            attempt=attempt,
            operator_digest="d",
            partition=0,
            segments=segments,
            closed_through_us=None,
            frontiers_ms=(),
            late_rows_total=0,
            keys=0,
            width=3,
        )


TestVersions = Versions.TestCase
TestVersions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
