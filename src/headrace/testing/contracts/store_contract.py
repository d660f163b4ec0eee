"""The contract of every store, as a class of tests to inherit from.

    class TestMine(StoreContract):
        name = "mine"
        cases = (RUNNING, TUMBLING)

A store runs as in the host, beside `StoreModel`; expected results come from the model only.
Some rounds have the mark `long`, which the project of the test has to register.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.operators.open import open_store
from headrace.plan.spec import (
    Accumulator,
    Emit,
    Field,
    Fold,
    Holistic,
    HolisticResult,
    OperatorSpec,
    StoreName,
    Window,
)
from headrace.testing.contracts.store_lab import Opener, StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel

SECOND = 1_000_000
TINY, AMPLE = 4096, 64 << 20
_SEEDS = (1, pytest.param(2, marks=pytest.mark.long))
_STEPS = (0, 1, pytest.param(2, marks=pytest.mark.long), 3)

TUMBLE = Window(10 * SECOND, offset_us=3 * SECOND)
SLIDE = Window(10 * SECOND, slide_us=4 * SECOND)
SESSION = Window(4 * SECOND, session=True)
LATE = replace(TUMBLE, lateness_us=12 * SECOND)
LATE_SLIDE = replace(SLIDE, lateness_us=12 * SECOND)
LATE_SESSION = replace(SESSION, lateness_us=6 * SECOND)


def folding(window: Window | None, emit: Emit) -> OperatorSpec:
    """Counts, a sum and extremes per key."""
    return OperatorSpec(
        name="folds",
        keys=(Field("k0", "string", "key"),),
        inputs=(Field("v0", "int64", "value"),),
        work=Fold(
            (
                Accumulator("count", None, "int64"),
                Accumulator("count", "v0", "int64"),
                Accumulator("sum", "v0", "int64"),
                Accumulator("min", "v0", "int64"),
                Accumulator("max", "v0", "int64"),
            )
        ),
        window=window,
        emit=emit,
        timed=window is not None,
        delays_ms=(0,) if window is not None else (),
        partitions=1,
    )


def keeping(window: Window) -> OperatorSpec:
    """A count beside two results that need all rows of a window."""
    results = (HolisticResult("list", "v0", "int64"), HolisticResult("set", "v0", "int64"))
    work = Holistic(results, (Accumulator("count", None, "int64"),))
    return replace(folding(window, "final"), name="keeps", work=work)


FOLDS = (folding(None, "changes"), folding(TUMBLE, "final"), folding(LATE_SLIDE, "final"))
SESSIONS = (folding(SESSION, "final"), folding(LATE_SESSION, "changes"))
KEPT = (keeping(SLIDE), keeping(LATE_SLIDE))


class StoreContract:
    """Inherit, and set the store and its operators."""

    name: StoreName
    cases: tuple[OperatorSpec, ...]
    spills = True  # state may be larger than memory
    opener: Opener = staticmethod(open_store)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" in metafunc.fixturenames:
            named = [pytest.param(case, id=title(case)) for case in self.cases]
            metafunc.parametrize("case", named)

    def lab(self, case: OperatorSpec, folder: Path, share_bytes: int = AMPLE) -> StoreLab:
        return StoreLab(replace(case, store=self.name), folder, share_bytes, self.opener)

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_answers_are_the_models(self, case: OperatorSpec, seed: int, tmp_path: Path) -> None:
        lab, model, draw = self.lab(case, tmp_path), StoreModel(case), random.Random(seed)
        for number in range(14):
            check(lab, model, rows(draw, number), watermark(case, draw, model, number))
            if number % 5 == 4:
                lab.reopen()
            if number % 4 == 3:
                lab.compact()

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_answers_do_not_depend_on_memory(self, case: OperatorSpec, seed: int, tmp_path: Path) -> None:
        if not self.spills:
            pytest.skip("this store holds all of its state in memory")
        lab, model, draw = self.lab(case, tmp_path, TINY), StoreModel(case), random.Random(seed)
        for number in range(8):
            check(lab, model, rows(draw, number, many=300), watermark(case, draw, model, number))

    @pytest.mark.parametrize("steps", _STEPS)
    def test_an_epoch_that_breaks_off_never_was(
        self, case: OperatorSpec, steps: int, tmp_path: Path
    ) -> None:
        share = TINY if self.spills else AMPLE
        lab, model, draw = self.lab(case, tmp_path, share), StoreModel(case), random.Random(steps)
        for number in range(6):
            batch, until = rows(draw, number), watermark(case, draw, model, number)
            later = None if until is None else until + 7 * SECOND
            lab.broken(rows(draw, number), later, steps)
            check(lab, model, batch, until)

    def test_files_of_a_version_never_change(self, case: OperatorSpec, tmp_path: Path) -> None:
        lab, model, draw = self.lab(case, tmp_path), StoreModel(case), random.Random(7)
        seen: dict[str, bytes] = {}
        for number in range(6):
            check(lab, model, rows(draw, number), watermark(case, draw, model, number))
            seen.update({name: data for name, data in lab.content().items() if name not in seen})
        for name, data in seen.items():
            assert lab.home.files.path(name).read_bytes() == data, name

    def test_an_older_version_can_be_opened_again(self, case: OperatorSpec, tmp_path: Path) -> None:
        lab, model, draw = self.lab(case, tmp_path), StoreModel(case), random.Random(8)
        check(lab, model, rows(draw, 0), watermark(case, draw, model, 0))
        older, version = model.copy(), lab.manifest
        for number in range(1, 4):
            check(lab, model, rows(draw, number), watermark(case, draw, model, number))
        lab.manifest = version
        lab.reopen()
        check(lab, older, rows(draw, 1), watermark(case, draw, older, 4))

    def test_a_small_change_writes_little(self, case: OperatorSpec, tmp_path: Path) -> None:
        lab, model = self.lab(case, tmp_path), StoreModel(case)
        until = None if case.window is None else 0
        check(lab, model, [Row(key, 5 * SECOND, key) for key in range(2000)], until)
        before, entries = lab.names(), lab.manifest.segments if lab.manifest else ()
        check(lab, model, [Row(1, 5 * SECOND, 3)], until)
        assert lab.manifest is not None
        written = sum(entry.size for entry in lab.manifest.segments if entry.name not in before)
        assert written < sum(entry.size for entry in entries) / 4

    def test_late_rows_are_dropped_and_counted(self, case: OperatorSpec, tmp_path: Path) -> None:
        if case.window is None:
            pytest.skip("without a window no row is late")
        lab, model = self.lab(case, tmp_path), StoreModel(case)
        check(lab, model, [Row(1, 5 * SECOND, 1), Row(2, 90 * SECOND, 1)], 60 * SECOND)
        check(lab, model, [Row(1, 6 * SECOND, 5), Row(3, 91 * SECOND, 1)], 60 * SECOND)
        assert model.late_rows == lab.store.late_rows == 1
        check(lab, model, [], 200 * SECOND)


def check(lab: StoreLab, model: StoreModel, batch: list[Row], until: int | None) -> None:
    """One epoch of store and model, which must agree."""
    late, model_late = lab.store.late_rows, model.late_rows
    assert lab.epoch(batch, until) == model.epoch(batch, until)
    assert lab.store.late_rows - late == model.late_rows - model_late


def rows(draw: random.Random, number: int, many: int = 90) -> list[Row]:
    """Rows around the epoch's time, out of order, some of them late; a few keys have many rows."""
    generated = []
    for _ in range(draw.randrange(many)):
        key = draw.randrange(6) if draw.random() < 0.3 else draw.randrange(200)
        time_us = number * 5 * SECOND + round(draw.gauss(0, 8) * SECOND)
        generated.append(Row(key, time_us, None if draw.random() < 0.1 else draw.randrange(-50, 50)))
    return generated


def watermark(case: OperatorSpec, draw: random.Random, model: StoreModel, number: int) -> int | None:
    """A watermark behind the rows that never moves back; None at first."""
    if case.window is None or (number == 0 and draw.random() < 0.5):
        return model.watermark_us
    at_us = number * 5 * SECOND - draw.randrange(8) * SECOND
    return at_us if model.watermark_us is None else max(model.watermark_us, at_us)


def title(case: OperatorSpec) -> str:
    window = case.window
    kind = "none" if window is None else "session" if window.session else "tumbling"
    if window is not None and window.slide_us:
        kind = "sliding"
    late = "-late" if window is not None and window.lateness_us else ""
    return f"{case.name}-{kind}{late}-{case.emit}"
