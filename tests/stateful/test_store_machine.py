"""Protects every store under any order of epochs, broken epochs, crashes, compactions and reopenings: what
comes out is what the model says, and an epoch that was not settled leaves no trace. Files are in place, or
elsewhere: then every reopening is a start on an empty machine."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from headrace.plan.spec import OperatorSpec
from headrace.testing.contracts.remote_lab import ROOMS, RemoteLab, Room
from headrace.testing.contracts.store_contract import (
    AMPLE,
    FOLDS,
    KEPT,
    LATE_SESSION,
    SECOND,
    SESSION,
    SESSIONS,
    TINY,
    check,
    keeping,
)
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel

PLACES = (None, *ROOMS.values())  # files in place, or elsewhere with a wide, a narrow and no disk cache
STORES: dict[str, tuple[OperatorSpec, ...]] = {
    "rmw": (*FOLDS, *SESSIONS),
    "memory": (*FOLDS, *SESSIONS),
    "aar": KEPT,
    "range": KEPT,
    "aur": (keeping(SESSION), keeping(LATE_SESSION), replace(keeping(SESSION), instances=2)),
    "rocksdb": (*FOLDS, *SESSIONS, *KEPT, keeping(SESSION), replace(keeping(SESSION), instances=2)),
}

rows_strategy = st.lists(
    st.builds(
        Row,
        st.integers(0, 9),
        st.integers(-10, 60).map(lambda seconds: seconds * SECOND),
        st.none() | st.integers(-5, 5),
    ),
    max_size=25,
)
steps_strategy = st.integers(0, 12).map(lambda seconds: seconds * SECOND)


def machine_of(name: str) -> type[RuleBasedStateMachine]:
    """The machine of one store."""

    class StoreMachine(RuleBasedStateMachine):
        @initialize(case=st.sampled_from(STORES[name]), tiny=st.booleans(), room=st.sampled_from(PLACES))
        def begin(self, case: OperatorSpec, tiny: bool, room: Room | None) -> None:
            self.folder = Path(tempfile.mkdtemp(prefix="headrace-machine-"))
            share = TINY if tiny and name != "memory" else AMPLE
            spec = replace(case, store=name)
            near = StoreLab(spec, self.folder, share) if room is None else None
            self.lab = near or RemoteLab(spec, self.folder, share, room=room or ROOMS["disk"])
            self.model = StoreModel(case)

        def _later(self, step_us: int) -> int | None:
            if self.model.spec.window is None:
                return None
            before = self.model.watermark_us
            return step_us - 10 * SECOND if before is None else before + step_us

        @rule(rows=rows_strategy, step_us=steps_strategy)
        def epoch(self, rows: list[Row], step_us: int) -> None:
            check(self.lab, self.model, rows, self._later(step_us))

        @rule(rows=rows_strategy, step_us=steps_strategy, steps=st.integers(0, 3))
        def crash(self, rows: list[Row], step_us: int, steps: int) -> None:
            self.lab.broken(rows, self._later(step_us), steps)

        @rule()
        def reopen(self) -> None:
            self.lab.reopen()

        @rule()
        def compact(self) -> None:
            self.lab.compact()

        def teardown(self) -> None:
            if hasattr(self, "folder"):
                shutil.rmtree(self.folder)

    return StoreMachine


@pytest.mark.parametrize("name", STORES)
def test_a_store_is_its_model(name: str) -> None:
    quick = settings(
        max_examples=12 if name == "rocksdb" else 30,
        stateful_step_count=14,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine_of(name), settings=quick)
