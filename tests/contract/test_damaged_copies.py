"""Protects state on an object store from a bad local disk: a damaged copy of an intact object is downloaded
again, whether it is damaged before the store opens or while it reads. A damaged object is still an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from headrace.blob.cached import CachedBlobs
from headrace.blob.copies import LocalCopies
from headrace.blob.objects import ObjectBlobs
from headrace.checkpoint.home import PartitionHome
from headrace.clock import SystemClock
from headrace.errors import StateCorrupt
from headrace.plan.spec import OperatorSpec
from headrace.testing.contracts.store_contract import SECOND, SESSION, SLIDE, check, folding, keeping
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel
from headrace.testing.faults.s3_server import S3Server

SMALL = 1 << 14  # bytes of memory: rows are read from segments
CASES = {
    "lookups": folding(None, "changes"),
    "slices": folding(SLIDE, "final"),
    "kept rows": keeping(SLIDE),
    "sessions": keeping(SESSION),
}


@dataclass
class ObjectLab(StoreLab):
    """A store whose files are objects with local copies."""

    location: str = ""

    def __post_init__(self) -> None:
        copies = LocalCopies.open(self.folder, self.location)
        self.home = PartitionHome.of(
            CachedBlobs(ObjectBlobs.open(self.location), copies), "p", SystemClock()
        )
        self.reopen()

    def copies(self) -> list[Path]:
        return [self.home.files.path(name) for name in self.names()]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running, running.environment():
        yield running


def damage(path: Path) -> None:
    """Flips bits all over a file, in place: open readers see it too."""
    with path.open("r+b") as file:
        data = bytearray(file.read())
        for position in range(3, len(data), 64):
            data[position] ^= 16
        file.seek(0)
        file.write(data)


def epochs(lab: StoreLab, model: StoreModel, numbers: range) -> None:
    for number in numbers:
        rows = [
            Row(key, number * SECOND + key * 1000, key + number) for key in range(0, 300, 1 + number % 3)
        ]
        check(lab, model, rows, (number - 4) * SECOND if model.spec.window else None)


@pytest.mark.parametrize("reopened", [True, False], ids=["before it opens", "while it is open"])
@pytest.mark.parametrize("spec", CASES.values(), ids=CASES.keys())
def test_a_damaged_copy_is_downloaded_again(
    spec: OperatorSpec, reopened: bool, server: S3Server, tmp_path: Path
) -> None:
    lab = ObjectLab(spec, tmp_path, SMALL, location=server.location(f"copies/{tmp_path.name}"))
    model = StoreModel(spec)
    epochs(lab, model, range(4))
    assert lab.copies()
    for path in lab.copies():
        damage(path)
    if reopened:
        lab.reopen()
    epochs(lab, model, range(4, 12))


def test_a_damaged_copy_of_a_rocksdb_file_is_downloaded_again(server: S3Server, tmp_path: Path) -> None:
    spec = replace(folding(None, "changes"), store="rocksdb")
    location = server.location(f"copies/{tmp_path.name}")
    lab, model = ObjectLab(spec, tmp_path, location=location), StoreModel(spec)
    epochs(lab, model, range(3))
    for path in lab.copies():
        damage(path)
    lab.reopen()
    epochs(lab, model, range(3, 6))


def test_a_damaged_object_is_an_error(server: S3Server, tmp_path: Path) -> None:
    spec = folding(None, "changes")
    lab = ObjectLab(spec, tmp_path, SMALL, location=server.location(f"copies/{tmp_path.name}"))
    epochs(lab, StoreModel(spec), range(3))
    for name in lab.names():
        path = lab.home.files.path(name)
        damage(path)
        damaged = path.read_bytes()
        lab.home.blobs.delete(f"p/{name}")
        lab.home.blobs.put_if_absent(f"p/{name}", damaged)
    with pytest.raises(StateCorrupt):
        lab.reopen()
