"""Protects the promise that damaged segments are found: any changed byte, any lost tail, a clear error."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from segment_rows import SHAPE, probe_of, run_of, table_of

from headrace.errors import StateCorrupt, StateUnsupported
from headrace.format import segment as form
from headrace.kernels.core.checksum import xxh64
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment

TABLES = {
    0: {(n, b"key %d" % n): (n, b"v" * n) for n in range(7)},
    -60: {(n, None): (n, b"other") for n in range(4)},
}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "segment"
    sections = [(number, [run_of(table)]) for number, table in TABLES.items()]
    write_segment(path, SHAPE.width, sections, SHAPE.variable_words, block_bytes=300, sync=False)
    return path


def opened(path: Path) -> Segment:
    return SegmentFile.open(path, SHAPE.width, SHAPE.variable_key_words)


def scan_all(path: Path) -> dict:
    segment = opened(path)
    try:
        return {number: table_of(segment.scan(number, 5)) for number in segment.sections}
    finally:
        segment.close()


def find_all(path: Path) -> dict:
    segment = opened(path)
    try:
        probes = {number: probe_of(table)[1] for number, table in TABLES.items()}
        return {number: int(segment.lookup(number, probe).mask.sum()) for number, probe in probes.items()}
    finally:
        segment.close()


def must_fail(read, path: Path) -> None:
    with pytest.raises(StateCorrupt) as caught:
        read(path)
    assert str(path) in caught.value.message
    assert "older version" in caught.value.hint


def test_the_whole_file_reads(whole):
    assert scan_all(whole) == TABLES
    assert find_all(whole) == {0: 7, -60: 4}


@pytest.mark.parametrize("read", [scan_all, find_all])
def test_every_changed_byte_is_found(whole, read):
    good = whole.read_bytes()
    rng = np.random.default_rng(1)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= int(rng.integers(1, 256))
        whole.write_bytes(bad)
        must_fail(read, whole)


@pytest.mark.parametrize("read", [scan_all, find_all])
def test_every_lost_tail_is_found(whole, read):
    good = whole.read_bytes()
    for length in range(len(good)):
        whole.write_bytes(good[:length])
        must_fail(read, whole)


def test_bytes_after_the_end_are_found(whole):
    whole.write_bytes(whole.read_bytes() + b"\0" * 8)
    must_fail(scan_all, whole)


def test_exchanged_blocks_are_found(tmp_path):
    """Each block is intact in itself; only the index knows that they changed places."""
    table = {(n, b"same"): (n, b"") for n in range(8)}
    path = tmp_path / "segment"
    write_segment(
        path, SHAPE.width, [(0, [run_of(table)])], SHAPE.variable_words, block_bytes=1, sync=False
    )
    data = path.read_bytes()
    size = 8 * 7 + 8
    start, first, second = form.HEADER_BYTES, data[32 : 32 + size], data[32 + size : 32 + 2 * size]
    path.write_bytes(data[:start] + second + first + data[start + 2 * size :])
    must_fail(scan_all, path)


@pytest.mark.parametrize("cut", [40, 300, 600])
def test_a_file_that_shrinks_while_open_is_found(whole, cut):
    segment = opened(whole)
    os.truncate(whole, cut)
    with pytest.raises(StateCorrupt, match="ends at byte"):
        segment.lookup(-60, probe_of(TABLES[-60])[1])
    segment.close()


def test_a_block_that_goes_bad_while_open_is_found(whole):
    segment = opened(whole)
    probe = probe_of(TABLES[0])[1]
    assert segment.lookup(0, probe).mask.all()
    with whole.open("r+b") as file:
        file.seek(form.HEADER_BYTES + 3)
        file.write(b"\xff")
    with pytest.raises(StateCorrupt, match="fails its checksum"):
        segment.lookup(0, probe)
    segment.close()


def test_a_newer_format_is_refused_by_name(whole):
    words = np.array([form.MAGIC, form.VERSION + 1, SHAPE.width], np.uint64)
    head = np.append(words, np.uint64(xxh64(words))).tobytes()
    whole.write_bytes(head + whole.read_bytes()[form.HEADER_BYTES :])
    with pytest.raises(StateUnsupported, match="format version 3"):
        opened(whole)


def test_intact_rows_of_another_layout_are_unsupported_not_corrupt(whole):
    with pytest.raises(StateUnsupported, match="6 words"):
        SegmentFile.open(whole, SHAPE.width + 1, SHAPE.variable_key_words)
    with pytest.raises(StateUnsupported, match="variable words"):
        SegmentFile.open(whole, SHAPE.width, (1, 2))


def test_an_intact_file_in_the_place_of_another_is_refused(whole):
    checksum = opened(whole).file.checksum
    SegmentFile.open(whole, SHAPE.width, SHAPE.variable_key_words, checksum=checksum).close()
    with pytest.raises(StateCorrupt, match="not the file that the manifest names"):
        SegmentFile.open(whole, SHAPE.width, SHAPE.variable_key_words, checksum=checksum ^ 1)
