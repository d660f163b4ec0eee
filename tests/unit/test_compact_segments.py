"""Protects compaction: the new segment answers as the old ones did together, without what is dead."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_rows import SHAPE, run_of, spreads, table_of, tables

from headrace.errors import TryAgain
from headrace.store.segments.compact import compact
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment

slices = st.dictionaries(st.integers(-2, 2), tables, max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compactions")


def stored(path: Path, tables_by_slice, spread: int = 1 << 64) -> Segment:
    sections = [(number, [run_of(table, spread)]) for number, table in tables_by_slice.items()]
    write_segment(path, SHAPE.width, sections, SHAPE.variable_words, block_bytes=300, sync=False)
    return SegmentFile.open(path, SHAPE.width, SHAPE.variable_key_words)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(slices, min_size=1, max_size=4), st.integers(-3, 3), spreads, st.sampled_from([100, 4 << 20])
)
def test_compaction_equals_updating_dicts(folder, layers, bound, spread, chunk_bytes):
    model: dict = {}
    segments = []
    for number, layer in enumerate(layers):
        segments.append(stored(folder / f"s{number}", layer, spread))
        for name, table in layer.items():
            model.setdefault(name, {}).update(table)
    alive = {number: table for number, table in model.items() if number >= bound and table}
    path = folder / "merged"
    path.unlink(missing_ok=True)
    meta = compact(segments, path, SHAPE, lambda number: number >= bound, chunk_bytes=chunk_bytes)
    for segment in segments:
        segment.close()
    if not alive:
        assert meta is None
        assert not path.exists()
        return
    merged = SegmentFile.open(path, SHAPE.width, SHAPE.variable_key_words)
    assert {number: table_of(merged.scan(number, 7)) for number in merged.sections} == alive
    assert meta.checksum == merged.file.checksum
    merged.close()


def test_a_stopped_compaction_leaves_no_file(tmp_path):
    table = {(n, b"text"): (n, b"") for n in range(3)}
    segments = [stored(tmp_path / name, {0: table}) for name in ("a", "b")]
    stop = threading.Event()
    stop.set()
    with pytest.raises(TryAgain, match="stopped"):
        compact(segments, tmp_path / "merged", SHAPE, lambda _: True, stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    for segment in segments:
        segment.close()
