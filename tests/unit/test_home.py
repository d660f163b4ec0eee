"""Protects opening a partition's files: wherever they are at that moment, or an error that says why not."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.blob.files import FileBlobs
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.publish import ManifestPublisher
from headrace.clock import SystemClock
from headrace.errors import StateMissing, StateUnsupported
from headrace.format.manifest import Manifest
from headrace.host.home import PartitionHome, entry_of
from headrace.host.local import seal_at
from headrace.spec import Accumulator, Field, OperatorSpec
from headrace.store.contract import FileKind
from headrace.store.open import kinds_of
from headrace.store.run import Run
from headrace.store.segment import Segment

PREFIX, NAME = "query/sums/p0000", "segments/v000000000001-r00000001-a000000000001-s000000.segment"
SPEC = OperatorSpec(
    name="sums",
    keys=(Field("k0", "int64", "key"),),
    inputs=(Field("v0", "int64", "amount"),),
    accumulators=(Accumulator("sum", "v0", "int64"),),
    window=None,
    emit="changes",
    timed=False,
    delays_ms=(),
    partitions=1,
)
KINDS = kinds_of(SPEC)


@pytest.fixture
def home(tmp_path: Path) -> PartitionHome:
    blobs = FileBlobs.open(tmp_path / "state", create=True)
    log = LocalLog.of(tmp_path / "local", str(tmp_path / "state"), PREFIX)
    log.open()
    return PartitionHome(
        blobs, PREFIX, ManifestPublisher(blobs, PREFIX, SystemClock()), itertools.count(), log
    )


def local_file(home: PartitionHome) -> Path:
    assert home.log is not None
    return home.log.file(NAME)


@pytest.fixture
def manifest(home: PartitionHome) -> Manifest:
    """A version with one segment, which is in the log only."""
    width = KINDS[0].shape.width
    run = Run(np.arange(3, dtype=np.uint64), np.ones((3, width), np.uint64), np.zeros(0, np.uint8))
    segment = seal_at(local_file(home), KINDS[0], [(0, [run])])
    entry = entry_of(segment)
    segment.close()
    return Manifest(
        write_id="w",
        version=1,
        parent_write_id=None,
        parent_version=None,
        run=1,
        attempt=1,
        operator_digest="d",
        partition=0,
        segments=(entry,),
        closed_through_us=None,
        frontiers_ms=(),
        late_rows_total=0,
        keys=3,
        width=width,
    )


def test_a_file_that_goes_to_storage_while_it_is_opened_is_opened_there(
    home: PartitionHome, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, shared = PartitionHome.open_segment, home.blobs.local_path(f"{PREFIX}/{NAME}")
    assert shared is not None

    def retired(self: PartitionHome, path: Path, kind: FileKind, checksum: int | None = None) -> Segment:
        if local_file(self).exists():
            shared.parent.mkdir(parents=True)
            shutil.move(local_file(self), shared)
        return opens(self, path, kind, checksum)

    monkeypatch.setattr(PartitionHome, "open_segment", retired)
    (segment,) = home.open_segments(manifest, KINDS)
    assert (segment.rows, Path(segment.path)) == (3, shared)
    segment.close()


def test_a_file_that_is_nowhere_is_missing(home: PartitionHome, manifest: Manifest) -> None:
    local_file(home).unlink()
    with pytest.raises(StateMissing, match="is not there"):
        home.open_segments(manifest, KINDS)


def test_rows_of_another_kind_are_not_taken_for_the_operators_own(
    home: PartitionHome, manifest: Manifest
) -> None:
    (entry,) = manifest.segments
    other = replace(manifest, segments=(replace(entry, kind="added"),))
    with pytest.raises(StateUnsupported, match=r"holds 'added', and the operator reads rows"):
        home.open_segments(other, KINDS)
