"""Protects merges: ordered, distinct, the newest source wins, in chunks, from memory and from segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_rows import SHAPE, run_of, spreads, table_of, tables

from headrace.row.run import Run
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.merge import merge
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("merges")


def stored(path: Path, run: Run, block_bytes: int = 4096) -> Segment:
    sections = [(5, [run])]
    write_segment(path, SHAPE.width, sections, SHAPE.variable_words, block_bytes=block_bytes, sync=False)
    return SegmentFile.open(path, SHAPE.width, SHAPE.variable_key_words)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(tables, st.booleans()), max_size=5),
    spreads,
    st.sampled_from([1, 300, 4096]),
    st.sampled_from([1, 3, 10, 1000]),
)
def test_a_merge_equals_updating_a_dict(folder, layers, spread, block_bytes, chunk_rows):
    sources, segments, model = [], [], {}
    for number, (table, on_disk) in enumerate(layers):
        run = run_of(table, spread)
        model.update(table)
        if on_disk:
            segments.append(stored(folder / f"s{number}", run, block_bytes))
            sources.append((segments[-1], 5))
        else:
            sources.append(run)
    assert table_of(merge(sources[::-1], SHAPE, chunk_rows)) == model
    for segment in segments:
        segment.close()


def numbered(hashes: np.ndarray, value: int) -> Run:
    words = np.zeros((len(hashes), 6), np.uint64)
    words[:, 1], words[:, 4] = hashes, value
    return Run(hashes, words, np.empty(0, np.uint8))


@pytest.mark.parametrize("top", [64, 54, 20])
def test_chunks_stay_near_the_limit(tmp_path, top):
    """Also where all hashes lie in one corner of the hash space, as those of one partition do."""
    rng = np.random.default_rng(top)
    picked = [np.unique(rng.integers(0, 1 << top, 20_000, np.uint64)) for _ in range(3)]
    old, middle, new = (numbered(hashes, value) for value, hashes in enumerate(picked))
    segment = stored(tmp_path / "old", old)
    chunks = list(merge([new, middle, (segment, 5)], SHAPE, 1000))
    assert max(map(len, chunks)) < 2500
    assert len(chunks) < 200
    merged = np.concatenate([chunk.order for chunk in chunks])
    assert (merged == np.unique(np.concatenate(picked))).all()
    newest = np.concatenate([chunk.words[:, 4] for chunk in chunks])
    wanted = np.where(np.isin(merged, picked[2]), 2, np.where(np.isin(merged, picked[1]), 1, 0))
    assert (newest == wanted).all()
    segment.close()


def test_a_chunk_of_memory_holds_only_its_own_bytes():
    table = {(n, b"x" * 100): (n, b"") for n in range(1000)}
    chunks = list(merge([run_of(table)], SHAPE, 10))
    assert max(len(chunk.heap) for chunk in chunks) <= 100 * 25
    assert table_of(chunks) == table


def test_nothing_merges_to_nothing():
    assert list(merge([], SHAPE, 10)) == []
    assert list(merge([run_of({}), run_of({})], SHAPE, 10)) == []
