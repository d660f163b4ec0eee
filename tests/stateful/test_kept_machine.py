"""Protects the AAR and Range stores against a plain list of rows: tumbling and sliding windows, late rows,
lateness, memory that holds next to nothing, crash and reopen at any point, files put together."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept_model import KEYS, Files, Model, batch_of, spec_of

from headrace.plan.spec import Window
from headrace.store.append import bucket_store
from headrace.store.append import buckets as kept_buckets

WINDOWS = [
    Window(10),
    Window(10, offset_us=3),
    Window(10, slide_us=2),
    Window(10, slide_us=4),
    Window(10, lateness_us=7),
    Window(9, slide_us=6, lateness_us=5),
]
ROWS = st.lists(
    st.tuples(st.integers(0, KEYS - 1), st.integers(-4, 20), st.none() | st.integers(-3, 3)),
    max_size=12,
)
STEP = st.one_of(
    st.tuples(st.just("apply"), ROWS),
    st.tuples(st.just("commit"), st.integers(0, 12)),
    st.tuples(st.just("crash"), st.none()),
    st.tuples(st.just("compact"), st.none()),
)


@pytest.fixture(autouse=True)
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets get files of their own, and two files of one bucket are already a crowd."""
    monkeypatch.setattr(kept_buckets, "FILE_BYTES", 0)
    monkeypatch.setattr(bucket_store, "crowd", lambda buckets: kept_buckets.crowd(buckets, 2, 6))


@pytest.mark.parametrize("store", ["aar", "range"])
@settings(max_examples=120, deadline=None)
@given(
    window=st.sampled_from(WINDOWS),
    share=st.sampled_from([1, 600, 4000, 1 << 20]),
    steps=st.lists(STEP, min_size=4, max_size=24),
)
def test_a_store_is_a_list_of_rows(store: Any, window: Window, share: int, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spec, now = spec_of(window, store), 0
        files, model = Files(Path(folder), spec, share), Model(window)
        for step, argument in [*steps, ("commit", 100)]:
            if step == "apply":
                rows = [(key, now + time, value) for key, time, value in argument]
                files.store.apply(batch_of(spec, rows))
                model.apply(rows)
            elif step == "commit":
                now += argument
                late = files.store.late_rows
                assert files.results(now) == model.results(now)
                assert files.store.late_rows == late
                model.settle(now)
            elif step == "crash":
                files.crash()
                model.crash()
            else:
                files.compact()
        assert files.store.segments == []
        assert files.store.keys_after(now) == 0


@pytest.mark.parametrize("store", ["aar", "range"])
@settings(max_examples=25, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=6))
def test_late_rows_are_counted_and_rows_are_stored_once(store: Any, rows: list[Any]) -> None:
    window = Window(10, slide_us=2)
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of(window, store)
        files, model = Files(Path(folder), spec, 1), Model(window)
        for number, batch in enumerate(rows):
            files.store.apply(batch_of(spec, batch))
            model.apply(batch)
            files.results(number)
            model.settle(number)
            assert files.store.late_rows == model.late
            slices = {row[1] - row[1] % 2 for row in model.rows}
            live = {start for start in slices if start - start % 2 + 10 > number}
            retained = [row for row in model.rows if row[1] - row[1] % 2 in live]
            assert files.store.keys_after(number) == len(retained)
            assert sum(segment.rows for segment in files.store.segments) >= len(retained)


def test_a_restart_finds_the_rows_and_memory_stays_within_its_share(tmp_path: Path) -> None:
    window = Window(1000)
    spec = spec_of(window, "aar")
    files, model = Files(tmp_path, spec, 20_000), Model(window)
    for epoch in range(30):
        rows = [(row % KEYS, epoch, row) for row in range(50)]
        files.store.apply(batch_of(spec, rows))
        model.apply(rows)
        assert files.store.memory_bytes <= 20_000
        assert files.results(epoch) == {}
        model.settle(epoch)
        assert files.store.memory_bytes <= 20_000
        files.compact()
    files.crash()
    assert files.results(1000) == model.results(1000)
