"""Protects windows of each key's own: by count, up to a marker, sessions whose rows have ends.

Any cut of the rows into epochs, with epochs that break off, restarts, compactions and little memory, gives
the windows of a plain model, and every version reads back as its rows. State does not grow with the number
of windows.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.inspect.changes import changes_between
from headrace.inspect.partition import open_partition
from headrace.inspect.selection import Selection
from headrace.plan.spec import TIME, Window
from headrace.store.settled import waiting
from headrace.testing.contracts.store_contract import AMPLE, SECOND, folding, keeping
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, name_of

Result = tuple[str, int, int, int, list[Any]]  # key, start, end, rows, values


@dataclass
class OrderedModel:
    """Windows over rows in their order, from all rows that were not late."""

    window: Window
    watermark_us: int | None = None
    rows: list[Row] = field(default_factory=list)

    def epoch(self, rows: Iterable[Row], watermark_us: int) -> list[Result]:
        self.rows += [row for row in rows if self.watermark_us is None or row.time_us > self.watermark_us]
        before, self.watermark_us = self.watermark_us, watermark_us
        made = []
        for key in sorted({row.key for row in self.rows}):
            for part in self._over(key, watermark_us):
                known_us = self._known_us(part)
                if before is None or known_us > before:
                    end_us = part[-1].time_us + 1 if self._closes(part[-1]) else known_us
                    made.append(shown(key, part[0].time_us, end_us, part))
        return sorted(made)

    def table(self) -> Counter[tuple[str, int, int | None]]:
        """The rows that are state: those that wait for the watermark, and those of windows to come."""
        assert self.watermark_us is not None
        waiting = [row for row in self.rows if row.time_us > self.watermark_us]
        for key in {row.key for row in self.rows}:
            over = self._over(key, self.watermark_us)
            gone = len(over) * self.window.step if self.window.count else sum(map(len, over))
            waiting += self._in_order(key, self.watermark_us)[gone:]
        return Counter((name_of(row.key), row.time_us, row.value) for row in waiting)

    def _over(self, key: int, watermark_us: int) -> list[list[Row]]:
        """The windows whose end the watermark has passed."""
        parts = self._windows(self._in_order(key, watermark_us))
        return [part for part in parts if self._known_us(part) <= watermark_us]

    def _known_us(self, part: list[Row]) -> int:
        """The watermark that ends the window: of its last row, or of the end of its gap."""
        return part[-1].time_us + (0 if self._closes(part[-1]) else self.window.width_us)

    def _closes(self, row: Row) -> bool:
        return bool(self.window.count) or self._marks(row)

    def _in_order(self, key: int, watermark_us: int) -> list[Row]:
        mine = [row for row in self.rows if row.key == key and row.time_us <= watermark_us]
        mine.sort(key=lambda row: (row.time_us, self._marks(row), row.value is not None, row.value or 0))
        return mine

    def _marks(self, row: Row) -> bool:
        return self.window.marker is not None and bool(row.value)

    def _windows(self, rows: list[Row]) -> list[list[Row]]:
        count, step = self.window.count, self.window.step
        if count:
            return [rows[at : at + count] for at in range(0, len(rows) - count + 1, step)]
        gap_us, after = self.window.width_us, [*rows, None][1:]
        ends = [
            at + 1
            for at, (row, other) in enumerate(zip(rows, after, strict=True))
            if self._marks(row) or (gap_us and (other is None or other.time_us > row.time_us + gap_us))
        ]
        return [rows[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@dataclass
class EndsModel:
    """Sessions whose rows have ends of their own; `value` is the end."""

    lateness_us: int = 0
    watermark_us: int | None = None
    open: list[tuple[int, int, int, list[Row]]] = field(default_factory=list)  # key, start, end, rows

    def epoch(self, rows: Iterable[Row], watermark_us: int) -> list[Result]:
        for row in rows:
            end = row.value or 0
            if self.watermark_us is not None and end <= self.watermark_us:
                continue
            own = (row.key, row.time_us, end, [row])
            for other in list(self.open):
                if other[0] == row.key and other[1] <= own[2] and own[1] <= other[2]:
                    self.open.remove(other)
                    own = (row.key, min(own[1], other[1]), max(own[2], other[2]), own[3] + other[3])
            self.open.append(own)
        self.watermark_us = watermark_us
        over = [one for one in self.open if one[2] <= watermark_us]
        self.open = [one for one in self.open if one[2] > watermark_us]
        return sorted(shown(key, start, end, rows) for key, start, end, rows in over)


def shown(key: int, start: int, end: int, rows: list[Row]) -> Result:
    return name_of(key), start, end, len(rows), sorted(row.value for row in rows if row.value is not None)


def results(emitted: list[tuple[Any, ...]], *, kept: bool) -> list[Result]:
    return sorted(
        (key, start, end, count, sorted(rest[0]) if kept else [])
        for key, start, end, count, *rest in emitted
    )


WINDOWS = {
    "tumbling": Window(0, count=3, step=3),
    "sliding": Window(0, count=4, step=2),
    "each": Window(0, count=2, step=1),
    "marker": Window(0, marker="v0"),
    "marker or gap": Window(3 * SECOND, marker="v0"),
}
ROWS = st.builds(
    Row,
    st.integers(0, 5),
    st.integers(0, 40).map(lambda s: s * SECOND),
    st.sampled_from([None, 0, 0, 1, 2]),
)
EPOCHS = st.lists(
    st.tuples(
        st.lists(ROWS, max_size=25), st.integers(0, 12), st.sampled_from(["", "break", "reopen", "compact"])
    ),
    max_size=10,
)


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=25, deadline=None)
@given(epochs=EPOCHS, share=st.sampled_from([4096, 64 << 20]))
def test_windows_in_order_are_the_models(name: str, epochs: Any, share: int) -> None:
    spec = replace(keeping(WINDOWS[name]), store="aur")
    with TemporaryDirectory() as folder:
        lab, model = StoreLab(spec, Path(folder), share), OrderedModel(WINDOWS[name])
        watermark = 0
        for number, (rows, forward, event) in enumerate(epochs):
            watermark += forward * SECOND
            disturb(lab, rows, watermark, event, number)
            assert results(lab.epoch(rows, watermark), kept=True) == model.epoch(rows, watermark)


@pytest.mark.parametrize("seconds", [1, 2.5, 15 * 60])
def test_rows_that_wait_in_files_of_an_earlier_release_are_read(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sections are numbered by their start alone, in steps of a second or of a quarter of a delay."""
    width_us, window = int(seconds * SECOND), WINDOWS["tumbling"]
    rows = [Row(key, at * width_us // 4 + 5, at) for key in range(2) for at in range(40)]
    lab, model = StoreLab(replace(keeping(window), store="aur"), tmp_path), OrderedModel(window)
    with monkeypatch.context() as earlier:
        earlier.setattr(waiting, "sections_of", lambda times_us, _: times_us - times_us % width_us)
        assert results(lab.epoch(rows, 0), kept=True) == model.epoch(rows, 0)
    lab.reopen()
    for quarter in (3, 6, 6, 21, 40):
        watermark = quarter * width_us // 4
        assert results(lab.epoch([], watermark), kept=True) == model.epoch([], watermark)


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=25, deadline=None)
@given(epochs=EPOCHS, share=st.sampled_from([4096, 64 << 20]))
def test_every_version_reads_back_as_the_models_rows(name: str, epochs: Any, share: int) -> None:
    spec = replace(keeping(WINDOWS[name]), store="aur")
    with TemporaryDirectory() as folder:
        lab, model = StoreLab(spec, Path(folder), share), OrderedModel(WINDOWS[name])
        watermark, versions = 0, []
        for number, (rows, forward, event) in enumerate(epochs):
            watermark += forward * SECOND
            disturb(lab, rows, watermark, event, number)
            lab.epoch(rows, watermark)
            model.epoch(rows, watermark)
            versions.append((lab.manifest, model.table()))
        names, (low, high) = (name_of(1), name_of(4)), (5 * SECOND, 25 * SECOND)
        for manifest, expected in versions:
            assert table_of(lab, manifest, Selection(spec)) == expected
            bounded = Selection(spec, from_us=low, before_us=high)
            assert table_of(lab, manifest, bounded) == fitting(expected, lambda row: low <= row[1] < high)
            one = Selection(spec, (("k0", names),))
            vars(one)["hashes"] = np.array([1 << 40, 4 << 40], np.uint64)  # as the lab hashes
            assert table_of(lab, manifest, one) == fitting(expected, lambda row: row[0] in names)
        for (old, before), (new, after) in itertools.pairwise(versions):
            with (
                open_partition(lab.home.blobs, "p", spec, old) as left,
                open_partition(lab.home.blobs, "p", spec, new) as right,
            ):
                changes = list(changes_between(left, right))
            inserted = plain(batch for kind, batch in changes if kind == "insert")
            deleted = plain(batch for kind, batch in changes if kind == "delete")
            assert (inserted, deleted) == (after - before, before - after)


def table_of(lab: StoreLab, manifest: Any, selection: Selection) -> Counter[tuple[Any, ...]]:
    """Key, event time and value of every selected row of a version."""
    with open_partition(lab.home.blobs, "p", lab.spec, manifest) as state:
        return plain(state.batches(selection, chunk_rows=7))


def plain(batches: Iterable[pa.RecordBatch]) -> Counter[tuple[Any, ...]]:
    rows: Counter[tuple[Any, ...]] = Counter()
    for batch in batches:
        columns = (batch.column("k0"), batch.column(TIME).cast(pa.int64()), batch.column("v0"))
        rows.update(zip(*(column.to_pylist() for column in columns), strict=True))
    return rows


def fitting(rows: Counter[Any], fits: Callable[[Any], bool]) -> Counter[Any]:
    return Counter({row: n for row, n in rows.items() if fits(row)})


@pytest.mark.parametrize(
    ("kept", "store", "memory"),
    [
        (False, "rmw", (4096, AMPLE)),
        (True, "aur", (4096, AMPLE)),
        (True, "memory", (AMPLE,)),
        (True, "rocksdb", (AMPLE,)),
    ],
)
@settings(max_examples=40, deadline=None)
@given(epochs=EPOCHS, gaps=st.randoms(use_true_random=False), small=st.booleans())
def test_sessions_with_ends_are_the_models(
    kept: bool, store: Any, memory: tuple[int, ...], epochs: Any, gaps: random.Random, small: bool
) -> None:
    window = Window(0, session=True, until="v0")
    spec = replace(keeping(window) if kept else folding(window, "final"), store=store)
    share = memory[0] if small else memory[-1]
    with TemporaryDirectory() as folder:
        lab, model, watermark = StoreLab(spec, Path(folder), share), EndsModel(), 0
        for number, (drawn, forward, event) in enumerate(epochs):
            rows = [replace(row, value=row.time_us + gaps.randrange(1, 9) * SECOND) for row in drawn]
            watermark += forward * SECOND
            disturb(lab, rows, watermark, event, number)
            ours = results(lab.epoch(rows, watermark), kept=False)
            assert ours == [(*one[:4], []) for one in model.epoch(rows, watermark)]


def disturb(lab: StoreLab, rows: list[Row], watermark_us: int, event: str, number: int) -> None:
    """What must not matter: an epoch that breaks off, a restart, a compaction."""
    if event == "break":
        lab.broken(rows, watermark_us, number % 4)
    elif event == "reopen":
        lab.reopen()
    elif event == "compact":
        lab.compact()


BOUNDED = {name: replace(keeping(window), store="aur") for name, window in WINDOWS.items()} | {
    "ends": folding(Window(0, session=True, until="v0"), "final"),
    "kept ends": replace(keeping(Window(0, session=True, until="v0")), store="aur"),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_state_does_not_grow_with_the_number_of_windows(name: str, tmp_path: Path) -> None:
    lab = StoreLab(BOUNDED[name], tmp_path)
    draw, sizes = random.Random(7), []
    for number in range(60):
        start = number * 60 * SECOND
        times = [start + draw.randrange(60 * SECOND) for _ in range(400)]
        values = [
            time + draw.randrange(1, 5) * SECOND if "ends" in name else draw.randrange(3) for time in times
        ]
        lab.epoch([Row(draw.randrange(20), *row) for row in zip(times, values, strict=True)], start)
        while lab.compact():
            pass
        sizes.append(sum(map(len, lab.content().values())))
    assert max(sizes[50:]) <= 1.2 * max(sizes[5:15])


def test_a_row_in_the_time_of_a_closed_session_begins_a_new_one(tmp_path: Path) -> None:
    """The closed session's row is in the log still; it once counted as a row of the new session."""
    lab = StoreLab(replace(keeping(Window(0, session=True, until="v0")), store="aur"), tmp_path, 4096)
    first, second = (Row(1, 15 * SECOND, end * SECOND) for end in (16, 25))
    lab.epoch([first], 12 * SECOND)
    assert [row[:4] for row in lab.epoch([], 22 * SECOND)] == [(name_of(1), 15 * SECOND, 16 * SECOND, 1)]
    assert lab.epoch([second], 23 * SECOND) == []
    assert [row[:4] for row in lab.epoch([], 26 * SECOND)] == [(name_of(1), 15 * SECOND, 25 * SECOND, 1)]


def test_a_compaction_that_leaves_nothing_writes_no_file(tmp_path: Path) -> None:
    """All windows are complete, so that no key has rows; the segment without rows once broke the commit."""
    lab = StoreLab(replace(keeping(WINDOWS["marker"]), store="aur"), tmp_path)
    lab.epoch([Row(0, SECOND, 0)], 2 * SECOND)
    lab.epoch([Row(0, 3 * SECOND, 1)], 4 * SECOND)
    while lab.compact():
        pass
    assert lab.epoch([Row(0, 5 * SECOND, 1)], 6 * SECOND) != []


def test_a_shorter_delay_of_the_watermark_loses_no_row(tmp_path: Path) -> None:
    """The width of a bucket followed from the delay, so that a start with another one dropped rows."""
    spec = replace(keeping(WINDOWS["tumbling"]), store="aur", delays_ms=(100_000,))
    lab = StoreLab(spec, tmp_path)
    lab.epoch([Row(1, at * SECOND, at) for at in (1, 12, 23)], 0)
    lab.spec = replace(spec, delays_ms=(0,))
    lab.reopen()
    lab.epoch([], 10 * SECOND)
    assert [row[3] for row in lab.epoch([], 30 * SECOND)] == [3]
