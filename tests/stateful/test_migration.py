"""Protects the move of state from memory to a layout: answers are the model's before, during and after it.
Epochs break off, stores crash and reopen at any point, and memory has any size."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plan.spec import StoreName, Window
from headrace.store.adaptive import migrate, rewrite
from headrace.store.adaptive.migrate import Move, MovingStore
from headrace.store.adaptive.observe import Fit
from headrace.store.base.jobs import Taken
from headrace.testing.contracts.store_contract import (
    LATE,
    LATE_SESSION,
    LATE_SLIDE,
    SECOND,
    SESSION,
    SLIDE,
    TUMBLE,
    check,
    keeping,
)
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel

WINDOWS = [TUMBLE, SLIDE, LATE, LATE_SLIDE, SESSION, LATE_SESSION]
AMPLE = 64 << 20
ROWS = st.lists(
    st.builds(
        Row,
        st.integers(0, 8),
        st.integers(-4 * SECOND, 20 * SECOND),
        st.none() | st.integers(-3, 3),
    ),
    max_size=12,
)
EPOCH = st.tuples(st.just("epoch"), st.tuples(ROWS, st.integers(0, 8)))
LEAVE = st.tuples(st.just("leave"), st.sampled_from([True, True, False]))
STEP = st.one_of(
    EPOCH,
    EPOCH,
    EPOCH,
    st.tuples(st.just("broken"), st.tuples(ROWS, st.integers(0, 3))),
    LEAVE,
    st.tuples(st.just("move"), st.none()),
    st.tuples(st.just("move"), st.none()),
    st.tuples(st.just("reopen"), st.none()),
    st.tuples(st.just("compact"), st.none()),
)


def moving(lab: StoreLab) -> MovingStore:
    assert isinstance(lab.store, MovingStore)
    return lab.store


def leave(lab: StoreLab, window: Window, by_time: bool) -> None:
    """What `fit` may say at any time."""
    store, own = moving(lab), "aur" if window.session else "aar"
    name: StoreName = "range" if by_time and not window.session else own  # type: ignore[assignment]
    if store.stored_as == "memory" and not store.is_moving:
        store.leave_memory(Fit(name, "the test says so"))


def finish(lab: StoreLab, store: MovingStore, move: Move | None) -> None:
    """The background is done with a move that was planned some epochs ago."""
    if move is not None and store is lab.store:
        move.take(move.run(lab.home, threading.Event()))


@settings(max_examples=150, deadline=None)
@given(
    window=st.sampled_from(WINDOWS),
    share=st.sampled_from([1, 3000, 20_000, AMPLE]),
    begin=st.tuples(EPOCH, LEAVE, EPOCH).map(list) | st.just([]),
    steps=st.lists(STEP, min_size=6, max_size=20),
)
def test_moving_state_is_a_list_of_rows(
    window: Window, share: int, begin: list[Any], steps: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spec, now = replace(keeping(window), store="auto"), 0
        lab, model = StoreLab(spec, Path(folder), share), StoreModel(spec)
        planned: tuple[MovingStore, Move | None] = moving(lab), None
        for step, argument in [*begin, *steps, ("epoch", ([], 200))]:
            if step == "epoch":
                rows = [replace(row, time_us=now + row.time_us) for row in argument[0]]
                now += argument[1] * SECOND
                check(lab, model, rows, now)
                if planned[0] is not lab.store or planned[1] is None:
                    planned = moving(lab), moving(lab).move()
            elif step == "broken":
                rows = [replace(row, time_us=now + row.time_us) for row in argument[0]]
                lab.broken(rows, now + 7 * SECOND, argument[1])
            elif step == "leave":
                leave(lab, window, argument)
            elif step == "move":
                finish(lab, *planned)
                planned = moving(lab), None
            elif step == "reopen":
                lab.reopen()
            else:
                lab.compact()
        assert lab.store.keys_after(now) == 0


@pytest.mark.parametrize(("window", "by_time"), [(SLIDE, False), (SLIDE, True), (SESSION, False)])
def test_a_move_is_in_the_version_and_rows_leave_memory(
    window: Window, by_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "FILE_BYTES", 10_000)
    share = 200_000
    spec = replace(keeping(window), store="auto")
    lab, model = StoreLab(spec, tmp_path, share), StoreModel(spec)
    name = "range" if by_time else "aur" if window.session else "aar"
    for number in range(3):
        check(lab, model, [Row(key, key % 9 * SECOND, number) for key in range(400)], 0)
    assert lab.manifest is not None
    assert lab.manifest.store == "memory"
    leave(lab, window, by_time)
    check(lab, model, [Row(3, SECOND, 5)], 0)
    assert lab.manifest.store == ("memory" if by_time else name)
    assert lab.move() == by_time
    check(lab, model, [Row(key, 2 * SECOND, 7) for key in range(100)], 0)
    assert lab.manifest.store == name
    assert lab.store.memory_bytes <= share
    check(lab, model, [Row(1, 3 * SECOND, 8)], 0)
    lab.reopen()
    assert moving(lab).stored_as == name
    check(lab, model, [Row(2, 4 * SECOND, 9)], 6 * SECOND)
    check(lab, model, [], 90 * SECOND)


def test_what_is_written_while_a_move_goes_on_is_moved_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds beside the batches, the last rows between two batches."""
    monkeypatch.setattr(migrate, "REST_BYTES", 3000)
    spec = replace(keeping(SLIDE), store="auto")
    lab, model = StoreLab(spec, tmp_path), StoreModel(spec)
    many = [Row(key, key % 9 * SECOND, key) for key in range(300)]
    check(lab, model, many, 0)
    leave(lab, SLIDE, by_time=True)
    first = moving(lab).move()
    assert first is not None
    check(lab, model, many, 0)
    assert first.take(first.run(lab.home, threading.Event())) is Taken.NOW
    twice = first.run(lab.home, threading.Event())
    assert first.take(twice) is Taken.NEVER
    lab.home.discard(twice)
    check(lab, model, [Row(1, SECOND, 1)], 0)
    assert lab.manifest is not None
    assert lab.manifest.store == "memory", "too much is left for one switch"
    second = moving(lab).move()
    assert second is not None
    check(lab, model, [Row(1, SECOND, 2)], 0)
    finish(lab, moving(lab), second)
    check(lab, model, [Row(1, SECOND, 3)], 0)
    assert lab.manifest.store == "range"
    check(lab, model, [], 90 * SECOND)


def test_a_store_that_is_dropped_leaves_no_file(tmp_path: Path) -> None:
    spec = replace(keeping(SLIDE), store="auto")
    lab = StoreLab(spec, tmp_path)
    lab.epoch([Row(key, SECOND, key) for key in range(50)], 0)
    before = set(tmp_path.rglob("*"))
    leave(lab, SLIDE, by_time=True)
    assert lab.move()
    assert set(tmp_path.rglob("*")) > before
    lab.begin()
    assert moving(lab).stored_as == "range"
    lab.home.discard(moving(lab).abandon())
    assert {path for path in tmp_path.rglob("*") if path.is_file()} <= before
