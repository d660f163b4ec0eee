"""Protects reading ahead: whatever hints come, early, late, lost, twice or wrong, and whenever their reads
end, results are those of the model. Memory is tiny, so rows are spilled and evicted; keys share hashes."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from headrace.plan.spec import OperatorSpec
from headrace.store.ahead import manager, staged
from headrace.store.ahead.hints import distinct
from headrace.store.rows.arrow import hashes_in
from headrace.store.rows.slices import cut
from headrace.store.segments.reader import Segment
from headrace.testing.contracts.store_contract import LATE_SLIDE, SECOND, TINY, TUMBLE, folding
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, StoreModel, batch_of, rows_of

SPECS = (folding(None, "changes"), folding(TUMBLE, "changes"), folding(LATE_SLIDE, "changes"))

# Keys 61 apart share a hash.
key_strategy = st.integers(0, 40) | st.integers(61, 70)
rows_strategy = st.lists(
    st.builds(Row, key_strategy, st.integers(0, 12).map(lambda s: s * SECOND), st.integers(-5, 5)),
    max_size=40,
)
burst_strategy = st.integers(0, 25).map(lambda start: [Row(key, 0, 1) for key in range(start, start + 40)])
some_rows = rows_strategy | burst_strategy
steps_strategy = st.integers(0, 2).map(lambda seconds: seconds * SECOND)


class Gate(threading.Event):
    """The end of a fetch; a row that waits for it lets the fetch go on."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()
        self.fails = False

    def wait(self, timeout: float | None = None) -> bool:
        self.opened.set()
        return super().wait(timeout)


class GatedThreads(Executor):
    """Each fetch looks for segments when `begin` is called, and reads them when its gate is opened."""

    def __init__(self) -> None:
        self.queued: list[tuple[Future[None], Callable[[], None]]] = []
        self.begun: list[tuple[Gate, threading.Thread]] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:  # type: ignore[override]
        future: Future[Any] = Future()
        self.queued.append((future, lambda: function(*arguments)))
        return future

    def begin(self) -> None:
        """Starts the oldest fetch that was not cancelled, and returns when it has its segments."""
        while self.queued:
            future, work = self.queued.pop(0)
            if future.set_running_or_notify_cancel():
                self.looked = threading.Semaphore(0)
                thread = threading.Thread(target=work)
                thread.start()
                self.looked.acquire()
                self.begun[-1] = (self.begun[-1][0], thread)
                return

    def gated(self, read: Callable[..., None]) -> Callable[..., None]:
        def wait_and_read(fetch: staged.Fetch, segments: Sequence[Segment]) -> None:
            gate = fetch.done
            assert isinstance(gate, Gate)
            self.begun.append((gate, threading.current_thread()))
            self.looked.release()
            gate.opened.wait()
            if gate.fails:
                raise OSError("the disk is gone")
            read(fetch, segments)

        return wait_and_read

    def end(self, at: int, *, fails: bool) -> None:
        """Lets one fetch read, or fail."""
        gate, thread = self.begun.pop(at % len(self.begun))
        gate.fails = fails
        gate.opened.set()
        thread.join()

    def end_all(self) -> None:
        while self.begun:
            self.end(0, fails=False)


class AheadMachine(RuleBasedStateMachine):
    @initialize(case=st.sampled_from(SPECS), tiny=st.booleans(), free=st.booleans())
    def open(self, case: OperatorSpec, tiny: bool, free: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-ahead-"))
        self.lab = StoreLab(case, self.folder, TINY if tiny else 3 * TINY)
        self.model = StoreModel(case)
        self.threads = GatedThreads()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(staged, "Event", Gate)
        if free:  # staged rows take no room, so that they stay while the rows of the table leave
            self.patch.setattr(manager.PrefetchManager, "nbytes", 0)
        self.patch.setattr(staged.Fetch, "read", self.threads.gated(staged.Fetch.read))
        self.lab.store.look_ahead(self.threads)
        self.pieces: list[list[Row]] = []

    @rule(rows=some_rows, twice=st.booleans())
    def hint(self, rows: list[Row], twice: bool) -> None:
        for _ in range(1 + twice):
            self.lab.store.expect(batch_of(self.lab.spec, rows))

    @rule(rows=some_rows)
    def hint_whatever_is_resident(self, rows: list[Row]) -> None:
        """As if the rows had left memory after the hint was filtered."""
        batch = batch_of(self.lab.spec, rows)
        for slice_us, part in cut(batch, self.lab.spec.window, None):
            hashes = distinct(hashes_in(part))
            self.lab.store.lookahead.hint(slice_us, hashes, np.zeros(len(hashes), np.bool_), 1)

    @rule()
    def fetch_all(self) -> None:
        for _ in range(20):
            self.threads.begin()
            self.threads.end_all()

    @rule(many=st.integers(1, 6))
    def begin_fetches(self, many: int) -> None:
        for _ in range(many):
            self.threads.begin()

    @rule(at=st.integers(0, 9), fails=st.booleans())
    def end_fetch(self, at: int, fails: bool) -> None:
        if self.threads.begun:
            self.threads.end(at, fails=fails)

    @rule(rows=some_rows, hints=some_rows, more=some_rows, step_us=steps_strategy)
    def epoch(self, rows: list[Row], hints: list[Row], more: list[Row], step_us: int) -> None:
        """An epoch with hints in its middle, after rows were folded, evicted and spilled."""
        until = self._later(step_us)
        self.lab.begin()
        self.lab.apply(rows)
        self.hint_whatever_is_resident(hints)
        self.begin_fetches(3)
        self.lab.apply(more)
        write = self.lab.store.gather(until)
        emitted = rows_of(self.lab.store.results(until))
        self.lab.settle(write(), until)
        assert emitted == self.model.epoch(rows + more, until)

    @rule(rows=rows_strategy, step_us=steps_strategy)
    def crash(self, rows: list[Row], step_us: int) -> None:
        self.lab.broken(rows, self._later(step_us), 3)
        self.lab.store.look_ahead(self.threads)

    @rule()
    def reopen(self) -> None:
        self.lab.reopen()
        self.lab.store.look_ahead(self.threads)

    @rule()
    def compact(self) -> None:
        self.lab.compact()

    @rule()
    def switch_off_and_on(self) -> None:
        self.lab.store.look_ahead(None)
        self.lab.store.look_ahead(self.threads)

    def _later(self, step_us: int) -> int | None:
        if self.model.spec.window is None:
            return None
        before = self.model.watermark_us
        return step_us - 10 * SECOND if before is None else before + step_us

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.threads.end_all()
            self.patch.undo()
            shutil.rmtree(self.folder)


@pytest.mark.parametrize("examples", [80, pytest.param(1500, marks=pytest.mark.long)])
def test_hints_never_change_results(examples: int) -> None:
    quick = settings(
        max_examples=examples,
        stateful_step_count=24,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(AheadMachine, settings=quick)
