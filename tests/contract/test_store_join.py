"""Protects joins in every store that holds them: over epochs, crashes and tiny memory, a window gives the
pairs of its definition, once."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plan.spec import (
    ALONE,
    LEFT,
    RIGHT,
    TIME,
    Field,
    OperatorSpec,
    StoreName,
    Window,
    WindowJoin,
    input_schema,
)
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import rows_of

Row = tuple[int | None, int, int, str | None]  # key, side, time, text
Bounds = tuple[int, int]

SPEC = OperatorSpec(
    name="join-1",
    keys=(Field("k0", "int32", "k"),),
    inputs=(Field("v0", "string", "name"),),
    work=WindowJoin(
        "full",
        (Field("v0", "string", "name"), Field(TIME, "timestamp", "seen")),
        (Field("v0", "string", "title"), Field(TIME, "timestamp", "opened")),
    ),
    window=Window(10),
    emit="final",
    timed=True,
    delays_ms=(0, 0),
    partitions=1,
)
CASES: list[tuple[StoreName, Window]] = [
    ("aar", Window(10)),
    ("aar", Window(12, slide_us=4)),
    ("range", Window(12, slide_us=4)),
    ("aar", Window(10, lateness_us=12)),
    ("range", Window(12, slide_us=4, lateness_us=6)),
    ("aur", Window(4, session=True)),
]

rows = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1, 2, 3]),
        st.sampled_from([LEFT, RIGHT]),
        st.integers(0, 50),
        st.none() | st.text("xyz", max_size=12),
    ),
    max_size=30,
)
epochs = st.lists(
    st.tuples(rows, st.integers(0, 15), st.sampled_from(["commit", "crash", "reopen"])), max_size=6
)


def batch_of(spec: OperatorSpec, rows: list[Row]) -> pa.RecordBatch:
    keys, sides, times, texts = zip(*rows, strict=True) if rows else ((),) * 4
    marked = [side + ALONE * (key is None) for key, side in zip(keys, sides, strict=True)]
    hashes = [((-1 if key is None else key) % 3) << 60 for key in keys]  # keys 0 and 3 share one
    schema = input_schema(spec)
    columns = zip([hashes, times, marked, keys, texts], schema, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in columns], schema=schema)


@dataclass
class Model:
    """All rows that were in time for a window that takes rows."""

    window: Window
    watermark: int | None = None
    state: list[tuple[Bounds, Row]] = field(default_factory=list)

    def epoch(self, rows: list[Row], watermark: int) -> Counter[tuple[Any, ...]]:
        timely = [(at, row) for row in rows for at in self._windows(row[2]) if self._takes(at)]
        fresh, before = {(at, row[0]) for at, row in timely}, self.watermark
        self.state += timely
        self.watermark = watermark
        whole = self._sessions() if self.window.session else self.state
        over = [
            (at, row)
            for at, row in whole
            if at[1] <= watermark and (before is None or at[1] > before or (at, row[0]) in fresh)
        ]
        self.state = [entry for entry, (at, _) in zip(self.state, whole, strict=True) if self._takes(at)]
        return joined(over)

    def _takes(self, bounds: Bounds) -> bool:
        return self.watermark is None or bounds[1] + self.window.lateness_us > self.watermark

    def _windows(self, time: int) -> list[Bounds]:
        width, every = self.window.width_us, self.window.every_us
        if self.window.session:
            return [(time, time + width)]
        return [(at, at + width) for at in range(time - time % every, time - width, -every)]

    def _sessions(self) -> list[tuple[Bounds, Row]]:
        """Each row with the session of its key that it is in."""
        self.state.sort(key=lambda at: (repr(at[1][0]), at[1][2]))
        sessions: list[list[tuple[Bounds, Row]]] = []
        for (start, end), row in self.state:
            last = sessions[-1] if sessions else []
            if last and last[-1][1][0] == row[0] and start <= last[-1][0][1]:
                last.append(((last[0][0][0], end), row))
            else:
                sessions.append([((start, end), row)])
        return [((of[0][0][0], of[-1][0][1]), row) for of in sessions for _, row in of]


def joined(over: list[tuple[Bounds, Row]]) -> Counter[tuple[Any, ...]]:
    """The full join by definition."""
    sides = [[(bounds, row) for bounds, row in over if row[1] == side] for side in (LEFT, RIGHT)]
    out: Counter[tuple[Any, ...]] = Counter()
    matched: set[int] = set()
    for i, (left_bounds, left) in enumerate(sides[LEFT]):
        for j, (right_bounds, right) in enumerate(sides[RIGHT]):
            if left[0] is not None and left[0] == right[0] and left_bounds == right_bounds:
                out[left[0], *left_bounds, left[3], left[2], right[3], right[2]] += 1
                matched |= {i, ~j}
    out.update(
        (a[0], *at, a[3], a[2], None, None) for i, (at, a) in enumerate(sides[LEFT]) if i not in matched
    )
    out.update(
        (b[0], *at, None, None, b[3], b[2]) for j, (at, b) in enumerate(sides[RIGHT]) if ~j not in matched
    )
    return out


def run(lab: StoreLab, rows: list[Row], watermark: int, *, commit: bool) -> Counter[tuple[Any, ...]]:
    lab.begin()
    lab.store.apply(batch_of(lab.spec, rows))
    write = lab.store.gather(watermark)
    emitted = rows_of(lab.store.results(watermark))
    written = write()
    if commit:
        lab.settle(written, watermark)
    else:
        lab.reopen()
    return Counter(emitted)


@pytest.mark.parametrize(("store", "window"), CASES)
@settings(max_examples=40, deadline=None)
@given(epochs, st.sampled_from([1 << 12, 64 << 20]))
def test_a_join_equals_its_definition(
    store: StoreName, window: Window, batches: list[tuple[list[Row], int, str]], share_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spec = replace(SPEC, window=window, store=store)
        lab, model, watermark = StoreLab(spec, Path(folder), share_bytes), Model(window), 0
        for batch, step, action in [*batches, ([], 1000, "commit")]:
            watermark += step
            if action == "crash":
                run(lab, batch, watermark, commit=False)
            if action == "reopen":
                lab.reopen()
            assert run(lab, batch, watermark, commit=True) == model.epoch(batch, watermark)
