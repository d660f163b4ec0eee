"""Protects the local log: an entry comes back as it was written, or not at all and with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.checkpoint.log import LocalLog, Planned
from headrace.errors import Fenced, StateCorrupt, TryAgain
from headrace.format.manifest import Manifest
from headrace.format.names import Attempt
from headrace.row.run import Run


def manifest_of(version: int, attempt: int = 1, run: int = 1) -> Manifest:
    return Manifest(
        write_id="w",
        version=version,
        parent_write_id=None,
        parent_version=None,
        run=run,
        attempt=attempt,
        operator_digest="d",
        partition=0,
        segments=(),
        closed_through_us=None,
        frontiers_ms=(),
        late_rows_total=0,
        keys=3,
        width=2,
    )


def run_of(rows: int, heap: bytes = b"") -> Run:
    hashes = np.arange(rows, dtype=np.uint64)
    words = np.arange(2 * rows, dtype=np.uint64).reshape(rows, 2)
    return Run(hashes, words, np.frombuffer(heap, np.uint8))


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    log = LocalLog.of(tmp_path, "s3://bucket/state", "query/sums/p0000")
    log.open()
    return log


def write(log: LocalLog, version: int, attempt: int = 1, run: int = 1) -> Path:
    sections = [(-5, [run_of(3, b"abc"), run_of(1)]), (7, [run_of(0)])]
    draft = log.draft([Planned("segments/a", "rows", sections), Planned("segments/b", "timers", [])])
    try:
        draft.finish(manifest_of(version, attempt, run), "manifests/parent", "{}", ["segments/x"])
    except BaseException:
        draft.discard()
        raise
    (path,) = log.folder.glob("*.log")
    return path


def test_an_entry_comes_back(log: LocalLog) -> None:
    write(log, 4)
    entry = log.read(Attempt(4, 1, 1))
    assert (entry.manifest, entry.parent, entry.spec) == (manifest_of(4), "manifests/parent", "{}")
    assert entry.local == {"segments/x"}
    rows, timers = entry.planned
    assert (rows.name, rows.kind, timers.kind, timers.sections) == ("segments/a", "rows", "timers", [])
    (low, (first, second)), (high, (empty,)) = rows.sections
    assert (low, high, len(second), len(empty)) == (-5, 7, 1, 0)
    np.testing.assert_array_equal(first.words, run_of(3).words)
    assert first.heap.tobytes() == b"abc"
    assert first.words.flags.writeable, "kernels take plain arrays"


def test_an_entry_has_its_name_only_when_it_is_whole(log: LocalLog) -> None:
    draft = log.draft([Planned("segments/a", "rows", [(0, [run_of(2)])])])
    assert log.entries() == []
    draft.discard()
    assert not [path for path in log.folder.iterdir() if path.is_file()]


def test_a_newer_entry_takes_the_place_of_the_older_ones(log: LocalLog) -> None:
    write(log, 4)
    write(log, 4, attempt=2)
    assert log.entries() == [Attempt(4, 1, 2)]
    write(log, 5, attempt=3)
    assert log.entries() == [Attempt(5, 1, 3)]


@pytest.mark.parametrize("newer", [Attempt(5, 1, 2), Attempt(4, 1, 2), Attempt(4, 2, 1), Attempt(3, 2, 1)])
def test_a_revived_host_cannot_erase_a_newer_entry(log: LocalLog, newer: Attempt) -> None:
    """Two hosts share the folder; the older one wakes up after the newer one has acknowledged its epoch."""
    path = write(log, newer.version, newer.attempt, newer.run)
    acknowledged = path.read_bytes()
    with pytest.raises(Fenced, match="newer entry") as refused:
        write(log, 4)
    assert path.name in refused.value.message
    assert log.entries() == [newer]
    assert path.read_bytes() == acknowledged


def test_a_later_start_that_goes_back_leaves_the_higher_version(log: LocalLog) -> None:
    """The higher version may be acknowledged, and the later start a driver that was away for a while."""
    entries = [Attempt(4, 2, 1), Attempt(6, 1, 1)]
    write(log, 6)
    draft = log.draft([])
    draft.finish(manifest_of(4, run=2), None, "{}", [])
    assert log.entries() == entries
    log.draft([]).finish(manifest_of(6, run=2), None, "{}", [])
    assert log.entries() == [Attempt(6, 2, 1)]


def test_every_cut_and_every_flipped_byte_is_found(log: LocalLog) -> None:
    path = write(log, 4)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(StateCorrupt, match="damaged"):
            log.read(Attempt(4, 1, 1))
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StateCorrupt):
            log.read(Attempt(4, 1, 1))


def test_segments_of_published_versions_go_and_later_ones_stay(log: LocalLog) -> None:
    attempts = [Attempt(3, 1, 9), Attempt(4, 1, 1), Attempt(4, 1, 2), Attempt(4, 2, 1), Attempt(5, 1, 1)]
    files = [
        log.file(f"segments/v{at.version:012d}-r{at.run:08d}-a{at.attempt:012d}-s000000.segment")
        for at in attempts
    ]
    for file in files:
        file.touch()
    log.remove_segments(Attempt(4, 1, 1))
    assert [file.exists() for file in files] == [False, False, True, True, True]


def test_a_full_disk_is_said_clearly(log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> list[int]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.checkpoint.log.write_run", full)
    with pytest.raises(TryAgain, match="No space left") as refused:
        write(log, 4)
    assert "free space" in refused.value.hint
    assert not [path for path in log.folder.iterdir() if path.is_file()], "the next try has the room again"
