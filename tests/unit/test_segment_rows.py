"""Protects what a segment answers: every row written is scanned and found again, and no other is."""

from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_rows import SHAPE, keys, probe_of, rows_of, run_of, spreads, table_of, tables

from headrace.errors import StateMissing
from headrace.kernels.segments.lookup import locate
from headrace.row.run import Run
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment, lookup_all
from headrace.store.segments.writer import write_segment

blocks = st.sampled_from([1, 200, 1000, 4096])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("segments")


def write(path: Path, sections, block_bytes: int = 4096):
    return write_segment(
        path, SHAPE.width, sections, SHAPE.variable_words, block_bytes=block_bytes, sync=False
    )


def opened(path: Path) -> Segment:
    return SegmentFile.open(path, SHAPE.width, SHAPE.variable_key_words)


def answers(matches, ordered) -> dict:
    rows = rows_of(Run(np.empty(0, np.uint64), matches.words[matches.mask], matches.heap))
    keys = [key for key, hit in zip(ordered, matches.mask, strict=True) if hit]
    assert [key for key, _ in rows] == keys
    return dict(rows)


@settings(max_examples=120, deadline=None)
@given(
    st.dictionaries(st.integers(-(2**63), 2**63 - 1), tables, max_size=3),
    st.sets(keys, max_size=20),
    spreads,
    blocks,
    st.integers(1, 30),
)
def test_scans_and_lookups_equal_a_dict(folder, slices, others, spread, block_bytes, chunk_rows):
    meta = write(folder / "a", [(s, [run_of(t, spread)]) for s, t in slices.items()], block_bytes)
    segment = opened(folder / "a")
    assert meta.rows == segment.rows == sum(map(len, slices.values()))
    assert meta.checksum == segment.file.checksum
    assert meta.size == segment.size == (folder / "a").stat().st_size
    assert set(segment.sections) == {s for s, table in slices.items() if table}
    for number, table in slices.items():
        assert table_of(segment.scan(number, chunk_rows)) == table
        ordered, probe = probe_of({*table, *others}, spread)
        assert answers(segment.lookup(number, probe), ordered) == table
    segment.close()


@settings(max_examples=60, deadline=None)
@given(tables, spreads, blocks, st.lists(st.integers(0, 2**64), min_size=2, max_size=2))
def test_a_range_holds_exactly_the_hashes_in_it(folder, table, spread, block_bytes, ends):
    low, high = sorted(ends)
    run = run_of(table, spread)
    write(folder / "r", [(7, [run])], block_bytes)
    segment = opened(folder / "r")
    inside = segment.scan_range(7, low, high)
    wanted = [int(hashed) for hashed in run.order if low <= int(hashed) < high]
    assert [int(hashed) for hashed in inside.order] == wanted
    assert set(rows_of(inside)) <= set(table.items())
    middle = (low + high) // 2
    whole = segment.count_range(7, low, high)
    assert segment.count_range(7, low, middle) + segment.count_range(7, middle, high) == whole
    assert segment.count_range(7, 0, 2**64) == len(table)
    segment.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(tables, min_size=1, max_size=4), spreads)
def test_the_newest_segment_that_holds_a_key_wins(folder, versions, spread):
    segments, model = [], {}
    for number, table in enumerate(versions):
        write(folder / f"v{number}", [(0, [run_of(table, spread)])], 200)
        segments.append(opened(folder / f"v{number}"))
        model.update(table)
    ordered, probe = probe_of({*model, (9, b"absent")}, spread)
    assert answers(lookup_all(segments[::-1], 0, probe), ordered) == model
    for segment in segments:
        segment.close()


def many(rows: int, start: int = 0) -> Run:
    hashes = np.arange(start, start + rows, dtype=np.uint64) * np.uint64(1 << 40)
    words = np.zeros((rows, 6), np.uint64)
    words[:, 1] = np.arange(start, start + rows)
    return Run(hashes, words, np.empty(0, np.uint8))


def test_streamed_runs_answer_like_one_run(tmp_path):
    write(tmp_path / "one", [(0, [many(5000)])])
    write(tmp_path / "parts", [(0, (many(100, start) for start in range(0, 5000, 100)))])
    for name in ("one", "parts"):
        segment = opened(tmp_path / name)
        probe = Run(
            many(5000).order[::3].copy(),
            np.ascontiguousarray(many(5000).words[::3, :3]),
            np.empty(0, np.uint8),
        )
        matches = segment.lookup(0, probe)
        assert matches.mask.all()
        assert (matches.words[:, 1] == np.arange(0, 5000, 3)).all()
        assert np.concatenate([run.words for run in segment.scan(0, 999)])[:, 1].tolist() == list(
            range(5000)
        )
        segment.close()


def test_streaming_holds_a_chunk_and_the_index_in_memory(tmp_path):
    write(tmp_path / "warm", [(0, [many(10)])])
    tracemalloc.start()
    write(tmp_path / "large", [(0, (many(2000, start) for start in range(0, 200_000, 2000)))])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "large").stat().st_size > 11_000_000
    assert peak < 4_000_000


def test_absent_keys_are_filtered_out_without_a_read(tmp_path):
    write(tmp_path / "a", [(0, [many(20_000)])])
    segment = opened(tmp_path / "a")
    run = many(20_000)
    segment.lookup(0, Run(run.order[:1], run.words[:1, :3].copy(), run.heap))
    index = segment.indexes[0]
    (tmp_path / "a").write_bytes(b"")  # reads fail now, so only filtered probes are answered
    strangers = run.order + np.uint64(12345)
    done = np.zeros(len(strangers), np.bool_)
    last = np.uint64(index.last)
    reads = locate(strangers, done, index.firsts, last, index.row_starts, index.filters)
    assert 0 < (reads >= 0).mean() < 0.03
    away = np.ascontiguousarray(strangers[reads < 0])
    assert not segment.lookup(0, Run(away, np.zeros((len(away), 3), np.uint64), run.heap)).mask.any()
    segment.close()


def test_todo_limits_a_lookup(tmp_path):
    write(tmp_path / "a", [(0, [many(10)])])
    segment = opened(tmp_path / "a")
    todo = np.arange(10) % 2 == 0
    matches = segment.lookup(
        0, Run(many(10).order, many(10).words[:, :3].copy(), np.empty(0, np.uint8)), todo
    )
    assert matches.mask.tolist() == todo.tolist()
    assert not matches.words[~todo].any()
    segment.close()


def test_values_longer_than_every_buffer(tmp_path):
    table = {(n, bytes([n]) * 1_500_000): (n, bytes([n + 9]) * 1_400_000) for n in range(3)}
    write(tmp_path / "a", [(0, [run_of(table)])])
    segment = opened(tmp_path / "a")
    ordered, probe = probe_of(table)
    assert answers(segment.lookup(0, probe), ordered) == table
    assert table_of(segment.scan(0, 1)) == table
    segment.close()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ([(0, [many(5), many(5, 4)])], "above the one before"),
        ([(0, [Run(many(5).order[::-1].copy(), many(5).words, many(5).heap)])], "ordered"),
        ([(0, [many(5)]), (0, [many(5)])], "twice"),
        ([(0, [Run(many(5).order, many(5).words[:, :3].copy(), many(5).heap)])], "words"),
    ],
)
def test_a_bad_run_leaves_nothing_behind(tmp_path, sections, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "a", sections)
    assert list(tmp_path.iterdir()) == []


def test_memory_is_counted_and_given_back(tmp_path):
    write(tmp_path / "a", [(0, [many(2000)]), (1, [many(2000)])])
    segment = opened(tmp_path / "a")
    assert segment.memory_bytes == 0
    list(segment.scan(0, 100))
    once = segment.memory_bytes
    list(segment.scan(1, 100))
    assert segment.memory_bytes == 2 * once > 2000
    segment.release(0)
    assert segment.memory_bytes == once
    segment.close()


def test_reads_end_in_peace_after_close(tmp_path):
    write(tmp_path / "a", [(0, [many(2000)])])
    segment = opened(tmp_path / "a")
    rows = segment.scan(0, 100)
    seen = len(next(rows))
    segment.close()
    segment.close()
    seen += sum(len(run) for run in rows)
    assert seen == 2000
    with pytest.raises(ValueError, match="closed"):
        segment.scan_range(0, 0, 2**64)


def test_threads_read_together(tmp_path):
    write(tmp_path / "a", [(0, [many(5000)])])
    segment, wrong = opened(tmp_path / "a"), []
    probe = Run(many(5000).order, many(5000).words[:, :3].copy(), np.empty(0, np.uint8))

    def read() -> None:
        wrong.extend(1 for _ in range(5) if not segment.lookup(0, probe).mask.all())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    segment.close()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StateMissing, match="gone"):
        opened(tmp_path / "gone")
