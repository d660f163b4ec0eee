"""Protects every store's state against a compactor that is wrong. Of each merge that a compactor may get,
the right output is accepted, and one with other rows is refused before a version names it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from headrace.checkpoint.home import entry_of
from headrace.errors import StateCorrupt
from headrace.host.compaction.verify import verify, verify_sample
from headrace.plan.spec import OperatorSpec
from headrace.row.arrays import I64
from headrace.row.run import Run
from headrace.store.append import bucket_store
from headrace.store.append.buckets import crowd
from headrace.store.base.jobs import Compaction, Merge
from headrace.store.merges import MERGES
from headrace.store.segments import compact
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.testing.contracts.store_contract import (
    LATE_SLIDE,
    SESSION,
    SLIDE,
    TUMBLE,
    folding,
    keeping,
    rows,
)
from headrace.testing.contracts.store_lab import StoreLab

Sections = dict[int, Run]
Spoil = Callable[[Sections], Sections]
EPOCHS = 60
SPECS: dict[str, tuple[str, OperatorSpec]] = {
    "running": ("newest", folding(None, "changes")),
    "tumbling": ("newest", folding(TUMBLE, "changes")),
    "final": ("sums", folding(TUMBLE, "final")),
    "late": ("newest", folding(LATE_SLIDE, "final")),
    "kept": ("kept", keeping(SLIDE)),
    "by time": ("kept", replace(keeping(SLIDE), store="range")),
    "sessions": ("sessions", folding(SESSION, "final")),
    "timers": ("timers", folding(SESSION, "final")),
}


@pytest.fixture(autouse=True)
def few_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three segments are enough for a compaction."""
    monkeypatch.setattr(compact, "FAN_IN", 3)
    monkeypatch.setattr(compact, "FAN_IN_UNREAD", 3)
    monkeypatch.setattr(bucket_store, "crowd", partial(crowd, files_max=2, all_max=2))


@dataclass
class Done:
    """A merge, its inputs, and what a compactor makes of it."""

    lab: StoreLab
    merge: Merge
    inputs: tuple[Segment, ...]

    def output(self, inputs: tuple[Segment, ...]) -> SegmentFile | None:
        job = Compaction.of(inputs, self.merge, MERGES[self.merge.name])
        return next(iter(job.run(self.lab.home, threading.Event())), None)

    def spoilt(self, spoil: Spoil, folder: Path) -> SegmentFile:
        """A whole file, with checksums of its own, that has other rows."""
        whole, shape = self.output(self.inputs), self.merge.kind.shape
        assert whole is not None
        sections = {number: _rows_of(whole, number) for number in whole.sections}
        changed = [(number, [run]) for number, run in sorted(spoil(sections).items()) if len(run)]
        path = folder / "spoilt"
        write_segment(path, shape.width, changed, shape.variable_words, sync=False)
        return SegmentFile.open(path, shape.width, shape.variable_key_words, kind=self.merge.kind.name)

    def check(self, output: SegmentFile, folder: Path) -> None:
        """As the host does, which takes the entry of the file that there is."""
        verify(self.merge, self.inputs, output, entry_of(output))
        verify_sample(self.merge, self.inputs, output, folder)


def _rows_of(segment: SegmentFile, number: int) -> Run:
    (run,) = segment.scan(number, 1 << 30)
    return run


def begun(lab: StoreLab, name: str) -> Iterator[Done]:
    """The merges of that name that the store asks for; the others are done."""
    draw, is_timed = random.Random(3), lab.spec.window is not None
    for _ in range(EPOCHS):
        lab.epoch(rows(draw, 10), 0 if is_timed else None)  # all windows stay open
        job = lab.store.maintenance()
        if isinstance(job, Compaction) and job.merge is not None and job.merge.name == name:
            yield Done(lab, job.merge, job.inputs)
        lab.compact()


@pytest.fixture(params=SPECS)
def done(request: pytest.FixtureRequest, tmp_path: Path) -> Done:
    name, spec = SPECS[request.param]
    lab = StoreLab(spec, tmp_path / "lab", 1 << 14)
    return next(one for one in begun(lab, name) if one.output(one.inputs) is not None)


def without_half_of_the_rows(sections: Sections) -> Sections:
    return {n: _picked(run, np.arange(0, len(run), 2)) for n, run in sections.items()}


def _picked(run: Run, rows: I64) -> Run:
    return Run(run.order[rows], run.words[rows], run.heap)


def with_another_word(sections: Sections) -> Sections:
    """The last word: of a row's value in every store."""
    changed = {}
    for number, run in sections.items():
        words = run.words.copy()
        words[:, -1] ^= np.uint64(1)
        changed[number] = Run(run.order, words, run.heap)
    return changed


def without_a_section(sections: Sections) -> Sections:
    first = min(sections)
    return {n: run for n, run in sections.items() if n != first}


def with_each_row_twice(sections: Sections) -> Sections:

    return {n: _picked(run, np.repeat(np.arange(len(run)), 2)) for n, run in sections.items()}


def test_the_right_output_is_accepted(done: Done, tmp_path: Path) -> None:
    output = done.output(done.inputs)
    assert output is not None
    done.check(output, tmp_path)


@pytest.mark.parametrize(
    "spoil", [without_half_of_the_rows, with_another_word, without_a_section, with_each_row_twice]
)
def test_other_rows_are_refused(done: Done, spoil: Spoil, tmp_path: Path) -> None:
    whole = done.output(done.inputs)
    assert whole is not None
    if spoil is without_a_section and len(whole.sections) < 2:
        pytest.skip("the output has one section only")
    with pytest.raises(StateCorrupt, match="is refused"):
        done.check(done.spoilt(spoil, tmp_path), tmp_path)


@pytest.mark.parametrize("left_out", ["oldest", "newest"])
def test_an_output_without_an_input_is_refused(done: Done, left_out: str, tmp_path: Path) -> None:
    output = done.output(done.inputs[1:] if left_out == "oldest" else done.inputs[:-1])
    if output is None:
        pytest.skip("no row of the other inputs lives")
    with pytest.raises(StateCorrupt, match="is refused"):
        done.check(output, tmp_path)
