"""Protects sessions, folded or with their rows kept: whatever breaks off, is reopened or compacted, or does
not fit into memory, every epoch emits what a plain model does."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headrace.plan.spec import OperatorSpec
from headrace.testing.contracts.store_contract import LATE_SESSION, SECOND, SESSION, folding, keeping
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel

CASES = (
    folding(SESSION, "final"),
    folding(LATE_SESSION, "final"),
    folding(LATE_SESSION, "changes"),
    keeping(SESSION),
    keeping(LATE_SESSION),
)
drawn = st.lists(
    st.tuples(st.integers(0, 12), st.integers(-12, 12), st.none() | st.integers(-9, 9)), max_size=80
)


class SessionMachine(RuleBasedStateMachine):
    """One partition; time goes on by itself, rows come around it."""

    @initialize(case=st.sampled_from(CASES), tiny=st.booleans())
    def begin(self, case: OperatorSpec, tiny: bool) -> None:
        folder = Path(tempfile.mkdtemp(prefix="headrace-sessions-"))
        self.lab = StoreLab(case, folder, 4096 if tiny else 64 << 20)
        self.model, self.now = StoreModel(case), 0

    def _rows(self, entries: list[tuple[int, int, int | None]]) -> list[Row]:
        return [Row(key, self.now + at * SECOND // 2, value) for key, at, value in entries]

    @rule(entries=drawn, step=st.integers(0, 8), behind=st.integers(0, 6))
    def epoch(self, entries: list[tuple[int, int, int | None]], step: int, behind: int) -> None:
        self.now += step * SECOND
        rows, until = self._rows(entries), self._until(behind)
        assert self.lab.epoch(rows, until) == self.model.epoch(rows, until)

    def _until(self, behind: int) -> int | None:
        before, proposal = self.model.watermark_us, self.now - behind * SECOND
        return proposal if before is None else max(before, proposal)

    @rule(entries=drawn, steps=st.integers(0, 3))
    def broken(self, entries: list[tuple[int, int, int | None]], steps: int) -> None:
        self.lab.broken(self._rows(entries), self._until(0), steps)

    @rule()
    def reopen(self) -> None:
        self.lab.reopen()

    @rule()
    def compact(self) -> None:
        self.lab.compact()

    def teardown(self) -> None:
        if hasattr(self, "lab"):
            shutil.rmtree(self.lab.folder)


SessionMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSessions = SessionMachine.TestCase
