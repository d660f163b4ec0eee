"""Protects opening a partition's files: wherever they are at that moment, or an error that says why not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.blob.files import FileBlobs
from headrace.checkpoint.home import PartitionHome, entry_of
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.logged_files import write_logged
from headrace.clock import SystemClock
from headrace.errors import StateMissing, StateUnsupported
from headrace.files.opened import OpenFile
from headrace.files.table import Place
from headrace.format.manifest import Manifest
from headrace.operators.open import kinds_of
from headrace.plan.spec import (
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
)
from headrace.row.run import Run

PREFIX, NAME = "query/sums/p0000", "segments/v000000000001-r00000001-a000000000001-s000000.segment"
SPEC = OperatorSpec(
    name="sums",
    keys=(Field("k0", "int64", "key"),),
    inputs=(Field("v0", "int64", "amount"),),
    work=Fold((Accumulator("sum", "v0", "int64"),)),
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
    return PartitionHome.of(blobs, PREFIX, SystemClock(), log)


def local_file(home: PartitionHome) -> Path:
    assert home.log is not None
    return home.log.file(NAME)


@pytest.fixture
def manifest(home: PartitionHome) -> Manifest:
    """A version with one segment, which is in the log only."""
    width = KINDS[0].shape.width
    run = Run(np.arange(3, dtype=np.uint64), np.ones((3, width), np.uint64), np.zeros(0, np.uint8))
    assert home.log is not None
    segment = write_logged(home, home.log, NAME, KINDS[0], [(0, [run])])
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


def test_a_logged_file_that_another_host_published_is_opened_on_storage(
    home: PartitionHome, manifest: Manifest
) -> None:
    assert home.files.place_of(NAME) is Place.LOG
    to_storage(home)
    (segment,) = home.open_segments(manifest, KINDS)
    assert segment.rows == 3
    assert home.files.place_of(NAME) is Place.SHARED
    segment.close()


def test_a_file_that_is_retired_while_it_is_opened_is_opened_on_storage(
    home: PartitionHome, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = OpenFile.at

    def retired(path: Path) -> OpenFile:
        if local_file(home).exists():
            to_storage(home)
            home.files.retire(manifest.written_by)
        return opens(path)

    monkeypatch.setattr(OpenFile, "at", retired)
    (segment,) = home.open_segments(manifest, KINDS)
    assert segment.rows == 3
    segment.close()


def to_storage(home: PartitionHome) -> None:
    shared = home.blobs.local_path(f"{PREFIX}/{NAME}")
    assert shared is not None
    shared.parent.mkdir(parents=True)
    shutil.move(local_file(home), shared)


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
