"""Protects the operator's records beside Spark's checkpoint: one writer per number, damage by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from host_fakes import counting

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.beside.record_log import (
    KEPT,
    RecordLog,
    log_folder,
    stored_record,
    stored_records,
)
from headrace.checkpoint.records import OperatorRecord, record_name
from headrace.errors import Fenced, StateCorrupt, StateUnsupported

RECORD = OperatorRecord("/state", counting(), (0,))


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(f"file:{tmp_path}")


def names(files: LocalFiles) -> list[str]:
    return files.list(log_folder("counts"))


def written(files: LocalFiles, batches: int) -> OperatorRecord:
    log, record = RecordLog(files, "counts"), RECORD
    for batch in range(batches):
        record = record.began(batch)
        log.put(record, "run")
    return record


def test_the_newest_record_counts_and_some_before_it_stay(files: LocalFiles) -> None:
    assert stored_record(files, "counts") is None
    record = written(files, 3)
    assert names(files) == ["00000001", "00000002", "00000003"]
    assert stored_record(files, "counts") == RecordLog(files, "counts").record == record
    written(files, 2 * KEPT)
    assert len(names(files)) == KEPT
    assert stored_records(files) == {"counts": stored_record(files, "counts")}


def test_a_number_has_one_writer(files: LocalFiles) -> None:
    mine, other = RecordLog(files, "counts"), RecordLog(files, "counts")
    mine.put(RECORD, "mine")
    with pytest.raises(Fenced, match=r"another start of the query has written .*00000001"):
        other.put(RECORD, "other")
    mine.put(RECORD.began(1), "mine")
    assert stored_record(files, "counts") == RECORD.began(1)


def test_a_put_whose_outcome_was_lost_is_repeated(files: LocalFiles) -> None:
    log, put = RecordLog(files, "counts"), files.put

    def lost(name: str, text: str) -> bool:
        put(name, text)
        raise OSError("no answer")

    files.put = lost  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no answer"):
        log.put(RECORD, "mine")
    files.put = put  # type: ignore[method-assign]
    log.put(RECORD, "mine")
    assert names(files) == ["00000001"]


def test_any_changed_bit_is_noticed_and_the_file_named(files: LocalFiles, tmp_path: Path) -> None:
    written(files, 2)
    path = tmp_path / log_folder("counts") / "00000002"
    intact = path.read_bytes()
    for position in range(len(intact)):
        changed = bytearray(intact)
        changed[position] ^= 1 << (position % 8)
        path.write_bytes(bytes(changed))
        with pytest.raises((StateCorrupt, StateUnsupported), match="00000002 ") as raised:
            stored_record(files, "counts")
        assert raised.value.hint
    for size in range(len(intact)):
        path.write_bytes(intact[:size])
        with pytest.raises(StateCorrupt, match="00000002 is damaged"):
            RecordLog(files, "counts")


def test_a_renamed_record_is_refused(files: LocalFiles, tmp_path: Path) -> None:
    written(files, 2)
    folder = tmp_path / log_folder("counts")
    (folder / "00000001").rename(folder / "00000003")
    with pytest.raises(StateCorrupt, match="it is number 1, so it was copied or renamed"):
        stored_record(files, "counts")


def test_a_record_of_the_release_before_is_read_and_leaves_with_the_first_number(files: LocalFiles) -> None:
    files.write(record_name("counts"), RECORD.to_json())
    assert stored_record(files, "counts") == RECORD
    assert stored_records(files) == {"counts": RECORD}
    RecordLog(files, "counts").put(RECORD.began(1), "run")
    assert stored_record(files, "counts") == RECORD.began(1)
    assert files.read(record_name("counts")) is None, "a release before must not go on from batch 0"


def test_names_of_operators_do_not_collide(files: LocalFiles) -> None:
    by_name = {name: replace(RECORD, spec=counting(name)) for name in ("a", "a.json", "a.log", "../a")}
    for name, record in by_name.items():
        RecordLog(files, name).put(record, "run")
    files.write(record_name("a"), RECORD.to_json())
    assert stored_records(files) == by_name


def test_state_inside_of_a_checkpoint_moves_with_it(tmp_path: Path) -> None:
    inside = replace(RECORD, location=str(tmp_path / "ck" / "headrace-state"))
    RecordLog(LocalFiles(f"file:{tmp_path}/ck"), "counts").put(inside, "run")
    moved = LocalFiles(f"file://{(tmp_path / 'ck').rename(tmp_path / 'moved')}")
    record = stored_record(moved, "counts")
    assert record is not None
    assert record.location == str(tmp_path / "moved" / "headrace-state")


def test_a_record_of_the_release_before_uses_the_state_beside_it(tmp_path: Path) -> None:
    old = replace(RECORD, location="/somewhere/ck/headrace-state")
    files = LocalFiles(f"file:{tmp_path}")
    files.write(record_name("counts"), old.to_json())
    assert stored_record(files, "counts") == old, "there is no other state"
    files.write("headrace-state/q/runs/00000001", "")
    assert stored_record(files, "counts") == replace(old, location=str(tmp_path / "headrace-state"))
