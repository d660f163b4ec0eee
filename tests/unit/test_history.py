"""Protects the history of queries: bounded on disk, whole after rotation, readable after a torn write."""

from __future__ import annotations

from pathlib import Path

import pytest
from progress_rows import batch_record

from headrace.errors import StateMissing
from headrace.monitor.history import (
    FILES,
    FOLDER,
    HistoryWriter,
    LocalHistory,
    RewrittenHistory,
    next_file,
    read_history,
)
from headrace.monitor.picture.picture import Picture
from headrace.monitor.picture.run import progress_of

FACT = {"kind": "query", "at_ms": 1, "query": "q", "run": "r", "name": "n", "checkpoint": "c"}


def write(checkpoint: Path, numbers: range, bytes_max: int = 40_000) -> None:
    folder = checkpoint / FOLDER
    writer = HistoryWriter(LocalHistory(folder), bytes_max, next_file(folder))
    writer.write([FACT], 1)
    for number in numbers:
        writer.write([batch_record(number)], number * 1000 + 2)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    run = progress_of(read_history(str(tmp_path)))
    assert [batch.batch for batch in run["counts"]] == [0, 1, 2, 3, 4]


def test_disk_use_is_bounded_and_the_newest_batches_stay(tmp_path: Path) -> None:
    write(tmp_path, range(300))
    files = list((tmp_path / FOLDER).iterdir())
    assert len(files) == FILES
    assert sum(path.stat().st_size for path in files) <= 45_000
    batches = [batch.batch for batch in progress_of(read_history(f"file:{tmp_path}"))["counts"]]
    assert batches == list(range(batches[0], 300))
    assert len(batches) > 15


def test_every_file_has_the_facts_of_its_query(tmp_path: Path) -> None:
    write(tmp_path, range(300))
    picture = Picture()
    picture.take(read_history(str(tmp_path)))
    assert picture.queries["q"].name == "n"


def test_a_new_run_leaves_the_files_of_the_one_before(tmp_path: Path) -> None:
    write(tmp_path, range(3))
    write(tmp_path, range(3, 6))
    assert [b.batch for b in progress_of(read_history(str(tmp_path)))["counts"]] == [0, 1, 2, 3, 4, 5]


def test_a_torn_line_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, range(3))
    path = tmp_path / FOLDER / "0.jsonl"
    path.write_text(path.read_text()[:-40])
    assert [b.batch for b in progress_of(read_history(str(tmp_path)))["counts"]] == [0, 1]


def test_a_removed_checkpoint_is_not_made_again(tmp_path: Path) -> None:
    writer = HistoryWriter(LocalHistory(tmp_path / "gone" / FOLDER), 1000)
    with pytest.raises(FileNotFoundError):
        writer.write([FACT], 1)
    assert not (tmp_path / "gone").exists()


def test_no_history_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(StateMissing, match=r"spark\.headrace\.history"):
        read_history(str(tmp_path))


def test_storage_without_appends_gets_whole_files_now_and_then() -> None:
    class Files:
        def __init__(self) -> None:
            self.texts: dict[str, str] = {}
            self.writes = 0

        def write(self, name: str, text: str) -> None:
            self.writes += 1
            self.texts[name] = text

    files = Files()
    writer = HistoryWriter(RewrittenHistory(files), 1 << 20)
    for number in range(30):
        writer.write([batch_record(number)], number * 1000)
    writer.write([{"kind": "ended", "at_ms": 1, "query": "q", "error": ""}], 30_500)
    assert files.writes < 8
    assert len(files.texts[f"{FOLDER}/0.jsonl"].splitlines()) == 1 + 30 + 1
