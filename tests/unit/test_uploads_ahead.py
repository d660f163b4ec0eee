"""Protects what is uploaded while a batch goes on: spilled segments are on shared storage before the
commit, which uploads the rest alone. An upload that fails is made up for, and an aborted batch publishes
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.bench.shared.rows import batch_of, hashes_of, spec_of
from headrace.blob.base import Blobs
from headrace.blob.files import FileBlobs
from headrace.checkpoint.epoch_files import PublishedFiles, UploadsAhead
from headrace.checkpoint.home import PartitionHome
from headrace.clock import SYSTEM_CLOCK, wait_until
from headrace.errors import SettingError
from headrace.host.state.service import PartitionService, open_service
from headrace.operators.open import kinds_of
from headrace.plan.options import CommitMode
from headrace.row.run import Run
from headrace.testing.faults.measured_blobs import MeasuredBlobs
from headrace.wire.contract import Ticket

SPEC = spec_of("totals", 1)
BLOCK, BLOCKS = 2_000, 4
Totals = dict[str, tuple[int, int]]


class Refusing(MeasuredBlobs):
    """Storage that refuses to take files while `refuses` is set."""

    refuses, refused = False, 0

    def put_file(self, name: str, path: Path) -> None:
        if self.refuses:
            self.refused += 1
            raise SettingError(f"{name} is refused", hint="end the test")
        super().put_file(name, path)

    def segments(self) -> list[str]:
        """The names of the segments that were put, in order."""
        puts = [each.name for each in self.requests if each.operation == "put"]
        return [name for name in puts if "/segments/" in name]


class Machine:
    """A host with one partition whose memory is too small for a batch."""

    def __init__(self, folder: Path, start: str) -> None:
        self._shared, self._start = str(folder / "state"), start
        self.far: list[Refusing] = []
        self.service: PartitionService = open_service(64 << 20, folder / start, wrap=self._wrapped)

    def _wrapped(self, blobs: Blobs) -> Blobs:
        self.far.append(Refusing(blobs))
        return self.far[-1]

    @property
    def blobs(self) -> Refusing:
        return self.far[0]

    def begin(self, number: int, commit: CommitMode = "sync") -> Any:
        base = number - 1 if number else None
        ticket = Ticket(self._start, "q", SPEC, 0, number, base, number + 1, self._shared, 5)
        return self.service.begin(replace(ticket, commit=commit))

    def fill(self, transaction: Any) -> None:
        """Blocks of rows, each of which is spilled."""
        for block in range(BLOCKS):
            keys = np.arange(block * BLOCK // 2, block * BLOCK // 2 + BLOCK, dtype=np.int64)
            transaction.apply(batch_of(SPEC, keys, hashes_of(keys)))
            transaction.fold()
            transaction.store.spill()

    def last_rows(self, transaction: Any) -> None:
        keys = np.arange(50, dtype=np.int64)
        transaction.apply(batch_of(SPEC, keys, hashes_of(keys)))

    def totals(self, number: int) -> Totals:
        """Count and sum of every key, by a batch that adds one to each."""
        transaction = self.begin(number)
        keys = np.arange((BLOCKS + 1) * BLOCK // 2, dtype=np.int64)
        transaction.apply(batch_of(SPEC, keys, hashes_of(keys)))
        rows = [row for batch in transaction.finish([]) for row in batch.to_pylist()]
        transaction.commit()
        return {row["k0"]: (row["a0"], row["a1"]) for row in rows}


def uploaded(blobs: Refusing) -> Callable[[], bool]:
    return lambda: len(blobs.segments()) == BLOCKS


def expected() -> Totals:
    """From the keys alone: how many blocks have each, the last rows, and the reading batch."""
    keys = np.concatenate([np.arange(BLOCK) + block * BLOCK // 2 for block in range(BLOCKS)])
    counts = np.bincount(np.concatenate([keys, np.arange(50)])) + 1
    texts = batch_of(SPEC, np.arange(len(counts)), hashes_of(np.arange(len(counts))))
    names = texts.column(texts.schema.names.index("k0")).to_pylist()
    return {name: (int(count), int(count)) for name, count in zip(names, counts, strict=True)}


def test_the_commit_uploads_no_spilled_segment(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "first")
    transaction = machine.begin(0)
    machine.fill(transaction)
    assert wait_until(uploaded(machine.blobs), 30_000, 10, SYSTEM_CLOCK), "while the batch goes on"
    ahead = machine.blobs.segments()
    machine.last_rows(transaction)
    list(transaction.finish([]))
    summary = transaction.commit()
    after = machine.blobs.segments()[BLOCKS:]
    assert len(after) == 1, "the rows that were not spilled"
    assert not set(after) & set(ahead)
    assert summary is not None
    machine.service.close()
    other = Machine(tmp_path, "second")
    assert other.totals(1) == expected()
    other.service.close()


@pytest.mark.parametrize("commit", ["upload", "async"])
def test_a_logged_commit_uploads_no_spilled_segment(tmp_path: Path, commit: CommitMode) -> None:
    machine = Machine(tmp_path, "first")
    transaction = machine.begin(0, commit)
    machine.fill(transaction)
    assert wait_until(uploaded(machine.blobs), 30_000, 10, SYSTEM_CLOCK), "while the batch goes on"
    ahead = machine.blobs.segments()
    machine.last_rows(transaction)
    list(transaction.finish([]))
    transaction.commit()
    machine.service.close()  # waits for the upload of the rest
    after = machine.blobs.segments()[BLOCKS:]
    assert len(after) == 1, "the rows that were not spilled"
    assert not set(after) & set(ahead)
    other = Machine(tmp_path, "second")
    assert other.totals(1) == expected()
    other.service.close()


@pytest.mark.parametrize("commit", ["upload", "async"])
def test_what_a_logged_batch_could_not_upload_ahead_is_uploaded_behind_it(
    tmp_path: Path, commit: CommitMode
) -> None:
    machine = Machine(tmp_path, "first")
    transaction = machine.begin(0, commit)
    machine.blobs.refuses = True
    machine.fill(transaction)
    assert wait_until(lambda: machine.blobs.refused == BLOCKS, 30_000, 10, SYSTEM_CLOCK)
    machine.blobs.refuses = False
    machine.last_rows(transaction)
    list(transaction.finish([]))
    transaction.commit()
    machine.service.close()
    assert len(machine.blobs.segments()) == BLOCKS + 1
    other = Machine(tmp_path, "second")
    assert other.totals(1) == expected()
    other.service.close()


def test_an_aborted_logged_batch_publishes_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "first")
    transaction = machine.begin(0, "async")
    machine.fill(transaction)
    transaction.abort()
    machine.service.close()
    assert not list((tmp_path / "state").rglob("*.manifest"))
    other = Machine(tmp_path, "second")
    transaction = other.begin(0, "async")
    machine.fill(transaction)
    machine.last_rows(transaction)
    list(transaction.finish([]))
    transaction.commit()
    assert other.totals(1) == expected()
    other.service.close()


def test_what_could_not_be_uploaded_ahead_is_uploaded_by_the_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path, "first")
    transaction = machine.begin(0)
    machine.blobs.refuses = True
    machine.fill(transaction)
    machine.last_rows(transaction)
    assert wait_until(lambda: machine.blobs.refused == BLOCKS, 30_000, 10, SYSTEM_CLOCK)
    machine.blobs.refuses = False
    list(transaction.finish([]))
    transaction.commit()
    assert len(machine.blobs.segments()) == BLOCKS + 1
    assert caplog.text.count("was not uploaded ahead") == BLOCKS
    machine.service.close()
    other = Machine(tmp_path, "second")
    assert other.totals(1) == expected()
    other.service.close()


def test_an_aborted_batch_publishes_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "first")
    transaction = machine.begin(0)
    machine.fill(transaction)
    assert wait_until(uploaded(machine.blobs), 30_000, 10, SYSTEM_CLOCK)
    transaction.abort()
    machine.service.close()
    assert not list((tmp_path / "first").rglob("*.tmp"))
    other = Machine(tmp_path, "second")
    transaction = other.begin(0)
    machine.fill(transaction)
    machine.last_rows(transaction)
    list(transaction.finish([]))
    transaction.commit()
    assert other.totals(1) == expected()
    other.service.close()


def test_an_upload_that_never_began_leaves_no_file(tmp_path: Path) -> None:
    blobs, gate = MeasuredBlobs(FileBlobs(tmp_path)), threading.Event()
    home = PartitionHome.of(blobs, "p", SYSTEM_CLOCK)
    ticket = Ticket("start", "q", SPEC, 0, 0, None, 1, str(tmp_path), 5)
    (kind, *_), width = kinds_of(SPEC), kinds_of(SPEC)[0].shape.width
    row = Run(np.ones(1, np.uint64), np.zeros((1, width), np.uint64), np.zeros(0, np.uint8))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(gate.wait)
        files = PublishedFiles(home, ticket, 1, UploadsAhead(pool, lambda done: done.result()))
        files.spill(kind, [(0, [row])])
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2, "one file, two names"
        files.discard()
        gate.set()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert blobs.requests == []
