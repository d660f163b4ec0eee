"""Protects paged indexes: a file that is elsewhere answers as the table does, whatever the pages. Opening
reads its end only, and a lookup the pages and blocks that it touches. Format version 1 stays readable.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_rows import SHAPE, keys, probe_of, rows_of, run_of, spreads, table_of, tables

from headrace.errors import StateCorrupt
from headrace.files.fetch import Fetcher
from headrace.files.partial import PartialFile
from headrace.files.space import PartialSpace
from headrace.format import segment as form
from headrace.kernels.core.checksum import xxh64
from headrace.row.run import Run
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.writer import write_segment


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def room() -> PartialSpace:
    space = PartialSpace(None, 1 << 30, Fetcher(4))
    space.fetcher.costs.bytes_per_ms = 0.0  # no gap is read
    return space


def far(data: bytes, log: list[tuple[int, int]] | None = None) -> SegmentFile:
    """The segment with these bytes, somewhere else."""

    def read(start: int, length: int) -> bytes:
        if log is not None:
            log.append((start, length))
        return data[start : start + length]

    file = PartialFile(room(), "there", len(data), read, lambda: len(data))
    return SegmentFile.over(file, "there", SHAPE.width, SHAPE.variable_key_words)


def written(path: Path, sections, page_blocks: int, block_bytes: int = 200) -> bytes:
    options = {"block_bytes": block_bytes, "page_blocks": page_blocks, "sync": False}
    write_segment(path, SHAPE.width, sections, SHAPE.variable_words, **options)
    return path.read_bytes()


def version_1(data: bytes) -> bytes:
    """The same segment as the first format had it; every section must have one page."""
    place = form.footer_place("x", data[-form.TRAILER_BYTES :], len(data))
    body = data[place.offset : place.offset + 8 * place.words]
    footer = form.parse_footer("x", body, place, SHAPE.width)
    words = [len(footer.variable_words), *footer.variable_words, len(footer.sections)]
    for entry in footer.sections:
        assert entry.directory == 0
        words += entry.pack()[:8]
    packed = np.array(words, np.uint64)
    end = np.array([place.offset, packed.size, xxh64(packed), form.MAGIC], np.uint64)
    head = np.array([form.MAGIC, 1, SHAPE.width], np.uint64)
    header = np.append(head, np.uint64(xxh64(head))).tobytes()
    return header + data[form.HEADER_BYTES : place.offset] + packed.tobytes() + end.tobytes()


def test_a_section_has_any_number_of_pages(folder: Path) -> None:
    """One call writes 1,024 parts at most: sections with more pages, from some 130 MB on, once failed."""
    table = {(number, None): (number, b"") for number in range(3000)}
    data = written(folder / "many", [(0, [run_of(table)])], page_blocks=1, block_bytes=32)
    assert far(data).sections[0].pages > 2048
    assert table_of(far(data).scan(0, 1000)) == table


@settings(max_examples=80, deadline=None)
@given(tables, st.sets(keys, max_size=20), spreads, st.sampled_from([1, 2, 3, 32]), st.booleans())
def test_a_file_elsewhere_answers_as_the_table(folder, table, strangers, spread, page_blocks, old):
    data = written(
        folder / "a", [(0, [run_of(table, spread)] if table else [])], 10**6 if old else page_blocks
    )
    segment = far(version_1(data) if old else data)
    ordered, probe = probe_of(set(table) | strangers, spread)
    matches = segment.lookup(0, probe)
    rows = rows_of(Run(np.empty(0, np.uint64), matches.words[matches.mask], matches.heap))
    assert dict(rows) == table
    assert [key for key, hit in zip(ordered, matches.mask, strict=True) if hit] == [key for key, _ in rows]
    scanned = [row for run in segment.scan(0, 5) for row in rows_of(run)]
    assert dict(scanned) == table
    assert len(scanned) == len(table)
    middle = 1 << 63
    halves = [segment.scan_range(0, 0, middle), segment.scan_range(0, middle, 1 << 64)]
    assert [row for half in halves for row in rows_of(half)] == scanned
    counts = [segment.count_range(0, 0, middle), segment.count_range(0, middle, 1 << 64)]
    assert sum(counts) == len(table)
    assert table_of([segment.rows_of(0, np.unique(probe.order))]) == table
    segment.verify()


def many(n: int) -> Run:
    order = np.arange(1, n + 1, dtype=np.uint64) * np.uint64((1 << 64) // (n + 2))
    words = np.zeros((n, 6), np.uint64)
    words[:, 1] = np.arange(n)
    return Run(order, words, np.empty(0, np.uint8))


def test_a_lookup_reads_what_it_touches(tmp_path: Path) -> None:
    n, log = 200_000, list[tuple[int, int]]()
    run = many(n)
    data = written(tmp_path / "a", [(0, [run])], form.PAGE_BLOCKS, 4096)
    segment = far(data, log)
    assert len(log) == 1, "opening reads the end of the file"
    chosen = np.arange(500, n, n // 10)
    probe = Run(run.order[chosen], run.words[chosen, :3].copy(), run.heap)
    log.clear()
    assert segment.lookup(0, probe).mask.all()
    assert len(log) <= 2 * len(chosen) + 1, "a page and a block per key, and the directory"
    assert sum(length for _, length in log) < 0.02 * len(data)
    assert segment.memory_bytes < 0.06 * len(data), "here the bytes that are present are in memory too"
    log.clear()
    assert segment.lookup(0, probe).mask.all()
    assert log == [], "all of it is present now"


def test_requests_do_not_grow_with_the_file(tmp_path: Path) -> None:
    def requests(n: int) -> int:
        log, run = list[tuple[int, int]](), many(n)
        segment = far(written(tmp_path / "a", [(0, [run])], form.PAGE_BLOCKS, 4096), log)
        chosen = np.arange(n // 20, n, n // 10)
        segment.lookup(0, Run(run.order[chosen], run.words[chosen, :3].copy(), run.heap))
        return len(log)

    assert requests(900_000) <= requests(300_000) + 1, "the directory may lie before the end that was read"


@pytest.mark.parametrize("part", ["page", "directory"])
def test_a_wrong_byte_of_an_index_is_noticed(tmp_path: Path, part: str) -> None:
    run = many(20_000)
    data = bytearray(written(tmp_path / "a", [(0, [run])], 4, 4096))
    entry = SegmentFile.open(tmp_path / "a", SHAPE.width, SHAPE.variable_key_words).sections[0]
    data[(entry.index if part == "page" else entry.directory) + 20] ^= 1
    probe = Run(run.order, run.words[:, :3].copy(), run.heap)
    with pytest.raises(StateCorrupt, match=f"{part}"):
        far(bytes(data)).lookup(0, probe)
    (tmp_path / "b").write_bytes(data)
    with pytest.raises(StateCorrupt, match=f"{part}"):
        SegmentFile.open(tmp_path / "b", SHAPE.width, SHAPE.variable_key_words).verify()
