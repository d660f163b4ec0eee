"""Protects joins that read the partners of rows ahead. Whatever hints come, right, wrong, twice or lost,
and whenever their reads end or fail, results are those of the definition. In time, they spare reads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs_model import LookingBack, Model, Row, batch_of, epochs, rows, run, spec_of

from headrace.host.ahead.hints import hint_rows
from headrace.plan.spec import HASH, LEFT, RIGHT, SIDE
from headrace.plan.work.joins.stream_join import Meets, StreamJoin
from headrace.store.ahead.sections import SectionFetch
from headrace.store.base import room
from headrace.store.pairs import store as pairs
from headrace.store.pairs.store import PairStore
from headrace.testing.contracts.store_lab import StoreLab


class AtOnce(Executor):
    """Reads when the hint comes."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:  # type: ignore[override]
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        function(*arguments)
        future.set_result(None)
        return future


class Never(Executor):
    """Its reads never begin, so they are given up."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:  # type: ignore[override]
        return Future()


class Failing(AtOnce):
    """Its reads fail."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:  # type: ignore[override]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SectionFetch, "read", _raising)
            return super().submit(function, *arguments)


def _raising(*_: Any) -> None:
    raise OSError("the disk is gone")


KINDS: tuple[Callable[[], Executor], ...] = (AtOnce, Never, Failing, lambda: ThreadPoolExecutor(1))


@contextmanager
def nothing_resident() -> Iterator[None]:
    """Committed sections are read from disk, whatever room there is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "excess_bytes", lambda *_: 1)
        patch.setattr(room, "RESIDENT_MAX", room.Part(0, 1))
        yield


@pytest.mark.parametrize(("how", "meets"), [("inner", "both"), ("full", "both"), ("left", "arrival")])
@pytest.mark.parametrize("bounded", [True, False])
@settings(max_examples=60, deadline=None)
@given(
    epochs,
    st.lists(rows, min_size=6, max_size=6),
    st.sampled_from([64 << 20, 8 << 10, 2 << 10]),
    st.sampled_from(KINDS),
    st.booleans(),
)
def test_hints_never_change_a_join(
    how: Any,
    meets: Meets,
    bounded: bool,
    drawn: list[tuple[list[Row], int, str]],
    hints: list[list[Row]],
    share: int,
    threads: Callable[[], Executor],
    right: bool,
) -> None:
    if not bounded and how == "full":
        how = "inner"
    spec = spec_of(how, *((0, 12) if bounded else (None, None)), meets)
    assert isinstance(spec.work, StreamJoin)
    executor = threads()
    with tempfile.TemporaryDirectory() as folder, nothing_resident(), executor:
        lab, watermark = StoreLab(spec, Path(folder), share), 0
        model = Model(spec.work) if meets == "both" else LookingBack(spec.work)
        for (listed, moved, end), hinted in zip(drawn, hints, strict=False):
            watermark += moved
            timely = [row for row in listed if row[0] is not None or spec.work.keeps_alone(row[1])]
            lab.reopen()  # drops the rows in memory
            lab.store.look_ahead(executor)
            for some in (timely, hinted, hinted) if right else (hinted,):
                lab.store.expect(batch_of(spec, some))
            if end == "crash":
                run(lab, timely, watermark, commit=False)
                lab.reopen()
                lab.store.look_ahead(executor)
                lab.store.expect(batch_of(spec, timely))
            assert run(lab, timely, watermark, commit=True) == model.epoch(timely, watermark)


KEYS = 3  # of `spec_of`'s hashes


@pytest.mark.parametrize("meets", ["both", "arrival"])
def test_partners_that_were_read_ahead_are_not_read_again(tmp_path: Path, meets: Meets) -> None:
    spec = spec_of("inner", *((None, None) if meets == "both" else (0, 100)), meets)
    lab = StoreLab(spec, tmp_path)
    run(lab, [(key, RIGHT, 5, "r") for key in range(KEYS)], 0, commit=True)
    left: list[Row] = [(key, LEFT, 6, "l") for key in range(KEYS)]
    with nothing_resident():
        for hinted in (False, True):
            lab.reopen()
            lab.store.look_ahead(AtOnce())
            if hinted:
                batch = batch_of(spec, left)
                lab.store.expect(hint_rows(batch.column(HASH).to_numpy().reshape(-1, 1), LEFT))
            assert sum(run(lab, left, 1, commit=True).values()) == KEYS
            now = lab.store.waited().counts()
            assert now["keys"] == KEYS
            assert now["hits"] == (KEYS if hinted else 0)
            assert (now["blocks"] == 0) == hinted
    counts = lab.store.ahead_counts()
    assert (counts.hints, counts.fetched, counts.used, counts.in_vain) == (KEYS, KEYS, KEYS, 0)
    assert counts.slacks.rows, "the time from hint to use is known"
    assert lab.store.waited().rows is not None
    assert sum(lab.store.waited().rows.rows.values()) >= KEYS  # type: ignore[union-attr]


def test_a_join_that_looks_back_reads_nothing_for_the_rows_that_it_looks_at(tmp_path: Path) -> None:
    spec = spec_of("left", 0, 100, "arrival")
    lab = StoreLab(spec, tmp_path)
    run(lab, [(key, RIGHT, 5, "r") for key in range(KEYS)], 0, commit=True)
    lab.reopen()
    lab.store.look_ahead(AtOnce())
    lab.store.expect(batch_of(spec, [(key, RIGHT, 6, "r") for key in range(KEYS)]))
    assert lab.store.ahead_counts().hints == 0


def test_unused_rows_leave_after_two_batches(tmp_path: Path) -> None:
    spec = spec_of("inner", None, None)
    lab = StoreLab(spec, tmp_path)
    run(lab, [(0, RIGHT, 5, "r"), (1, RIGHT, 5, "r")], 0, commit=True)
    with nothing_resident():
        lab.reopen()
        lab.store.look_ahead(AtOnce())
        lab.store.expect(batch_of(spec, [(0, LEFT, 6, "l"), (1, LEFT, 6, "l")]))
        assert isinstance(lab.store, PairStore)
        staged = lab.store.ahead.lookahead.nbytes
        assert staged > 0
        for step in range(2):
            run(lab, [(0, LEFT, 7 + step, "l")], 1, commit=True)
        assert lab.store.ahead.lookahead.nbytes == 0
    assert lab.store.ahead_counts().in_vain == 1


def test_hints_name_their_side() -> None:
    hints = hint_rows(np.zeros((2, 2), np.int64), RIGHT)
    assert hints.column(SIDE).to_pylist() == [RIGHT, RIGHT]
    assert SIDE not in hint_rows(np.zeros((2, 1), np.int64)).schema.names
