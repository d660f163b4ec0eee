"""Protects the memory that combining takes: a range of hashes comes to few rows, made of however many."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.plan.spec import (
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    Window,
)
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.fold import panes
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.writer import write_segment
from headrace.store.tables.table import Table

PARTS, LIMIT = 16, 64
LAYOUT = RowLayout(
    OperatorSpec(
        name="counts",
        keys=(Field("k0", "int64", "key"),),
        inputs=(),
        work=Fold((Accumulator("count", None, "int64"),)),
        window=Window(10, 0, 2),
        emit="final",
        timed=True,
        delays_ms=(0,),
        partitions=1,
    )
)


def pane(keys: np.ndarray[Any, Any], hashes: np.ndarray[Any, Any] | None = None) -> panes.Pane:
    table = Table(LAYOUT)
    words = np.zeros((len(keys), LAYOUT.key_width), np.uint64)
    words[:, -1] = keys
    spread = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    table.upsert(Run(spread if hashes is None else hashes, words, np.empty(0, np.uint8)))
    return panes.Pane(0, table, ())


def stored(path: Path, keys: np.ndarray[Any, Any]) -> panes.Pane:
    """The same in a segment."""
    write_segment(path, LAYOUT.width, [(0, [pane(keys).table.whole_run()])], ())
    return panes.Pane(0, Table(LAYOUT), (SegmentFile.open(path, LAYOUT.width, ()),))


def ranges(parts: list[panes.Pane], patch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What each range came to, and how many rows it was made of."""
    seen = []

    def counted(made_by: Any, *arguments: Any) -> tuple[Run, int]:
        made, rows = made_by(*arguments)
        seen.append((len(made), rows))
        return made, rows

    for how in ("_at_once", "_in_turn"):
        patch.setattr(panes, how, partial(counted, getattr(panes, how)))
    keys = [key for run in panes.combined(parts, LAYOUT, LIMIT) for key in run.words[:, 1].tolist()]
    assert len(keys) == len(set(keys)) == sum(made for made, _ in seen)
    return seen


def test_parts_of_the_same_keys_are_read_in_larger_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ranges([pane(np.arange(1000)) for _ in range(PARTS)], monkeypatch)
    assert sum(rows for _, rows in seen) == PARTS * 1000
    assert max(made for made, _ in seen) <= 2 * LIMIT
    assert len(seen) < 1000 // LIMIT * 4, "a range of as many rows as a table may have would be one of 250"


def test_parts_of_different_keys_are_read_in_small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ranges([pane(np.arange(1000) + 1000 * part) for part in range(PARTS)], monkeypatch)
    assert sum(made for made, _ in seen) == PARTS * 1000
    assert max(made for made, _ in seen) <= 2 * LIMIT


def test_hashes_that_lie_close_together_are_found_in_few_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = np.arange(2000)
    close = keys.astype(np.uint64) + np.where(keys < 5, 0, 1 << 62).astype(np.uint64)
    seen = ranges([pane(keys, close) for _ in range(3)], monkeypatch)
    assert sum(rows for _, rows in seen) == 6000
    assert max(made for made, _ in seen) <= 2 * LIMIT
    assert len(seen) < 6000 // LIMIT * 2


def test_few_segments_of_the_same_keys_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [stored(tmp_path / str(part), np.arange(1000)) for part in range(5)]
    seen = ranges([*parts, pane(np.arange(900, 1100))], monkeypatch)
    assert sum(rows for _, rows in seen) == 5200
    assert sum(made for made, _ in seen) == 1100
    assert max(rows for _, rows in seen) <= 2 * panes.DENSITY_MAX_ALIGNED * LIMIT, "all of them in memory"


def test_many_segments_are_read_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panes, "aligned", None)
    parts = [stored(tmp_path / str(part), np.arange(500)) for part in range(panes.RUNS_MAX + 1)]
    assert sum(made for made, _ in ranges(parts, monkeypatch)) == 500


def test_one_part_is_given_out_as_it_is() -> None:
    alone = pane(np.arange(1000))
    (run,) = panes.combined([alone], LAYOUT, LIMIT)
    assert run.words.base is alone.table.view().words.base, "not copied"
    assert list(panes.combined([], LAYOUT, LIMIT)) == []
