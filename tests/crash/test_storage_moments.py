"""Protects files against a host that is killed at any moment of a collection, or of its disk cache.

Real processes, no Spark. Nothing that is named goes, and after the next collection nothing unnamed is left.
A kill of the cache's work costs requests only.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from test_commit_moments import BATCHES, Query

from headrace.blob.files import FileBlobs
from headrace.checkpoint.collect import collect, needed_by
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.restore import read_manifest
from headrace.checkpoint.steps import Moment, Probe
from headrace.files import keeper
from headrace.files.policy import HistoryPolicy
from headrace.format.names import leased_through, operator_prefix, parse_manifest, parse_segment
from headrace.host.state import maintenance
from headrace.host.state.service import PartitionService, open_service
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.plan.partitions.layouts import first_layout
from headrace.recovery.redo import StateOf, redo
from headrace.testing.crash.matrix import CACHE, COLLECTION
from headrace.testing.faults.dying_service import dying_at
from headrace.testing.simulation.model import QUERY, SPEC

RETAIN = 1
OLDEST = len(BATCHES) - RETAIN  # retained when all batches have run: the newest, and the one before it
PREFIX = operator_prefix(QUERY, SPEC.name)


class Lingering(Query):
    """A query whose moments come behind the batches, and may come after the last one."""

    retain = RETAIN

    def linger(self) -> None:
        time.sleep(60)

    def go_on(self, last: int) -> None:
        """The last batch may be in the log only, with none after it that publishes it."""
        if self.mode != "sync":
            state = StateOf(str(self.folder / "shared"), QUERY, SPEC.name, first_layout(1))
            redo(self.folder / "local", state, last)
        super().go_on(last)


def left_over(blobs: FileBlobs) -> set[str]:
    """Files before the oldest retained version that no manifest names, and lists of dead collectors."""
    names = blobs.list(f"{PREFIX}/")
    manifests = {name: read_manifest(blobs, name) for name in names if parse_manifest(name)}
    segments = {name for name in names if parse_segment(name) and leased_through(name) < OLDEST}
    lists = {name for name in names if "/condemned/" in name}
    return segments - needed_by(manifests) | lists


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("moment", COLLECTION)
@pytest.mark.parametrize("mode", COMMIT_MODES)
def test_a_host_killed_while_it_collects_loses_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: CommitMode, moment: Moment, nth: int
) -> None:
    monkeypatch.setattr(maintenance, "COLLECT_EVERY", 1)
    query = Lingering(tmp_path, mode)
    query.go_on(query.die(dying_at(moment, nth=nth)))
    blobs = FileBlobs.open(tmp_path / "shared", create=False)
    for _ in range(2):  # the first one finishes what dead collectors left
        collect(blobs, PREFIX, OLDEST, RETAIN, folders=[f"{PREFIX}/p0000"])
    assert left_over(blobs) == set()
    versions = {attempt.version for name in blobs.list(PREFIX) if (attempt := parse_manifest(name))}
    assert versions == set(range(OLDEST, len(BATCHES) + 1))


class Cached(Lingering):
    """A query whose files are elsewhere, with a disk cache that has room for few of them."""

    def serve(self, probe: Probe) -> PartitionService:
        return open_service(1, self.folder / "local", disk="6k", crew=Crew(probe=probe))


@pytest.mark.parametrize("moment", CACHE)
@pytest.mark.parametrize("mode", COMMIT_MODES)
def test_a_host_killed_while_its_disk_cache_changes_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: CommitMode, moment: Moment
) -> None:
    monkeypatch.setattr(keeper, "HistoryPolicy", lambda: HistoryPolicy(accesses=1, apart_ms=0.0))
    query, last = Cached(tmp_path, mode), -1
    if moment in (Moment.PROMOTING, Moment.PROMOTED):  # of files that another machine has written
        last = 2
        service = query.serve(lambda _: None)
        for number in range(last + 1):
            query.run(service, number)
        service.close()
        query.era += 1
        shutil.rmtree(tmp_path / "local")
    query.go_on(query.die(dying_at(moment), first=last + 1))
