"""Protects the results of branches, without Spark: a branch and its original each give what a model gives.
That holds in every store and commit mode, with other numbers of partitions, hosts killed and the original
dropped."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rescale_machine import BATCH, ROWS, SPECS, STEP, Machine, drawn

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.keep.branch import begin_state, branch_record
from headrace.checkpoint.keep.dropped import drop_query
from headrace.checkpoint.keep.pins import named_files
from headrace.checkpoint.keep.savepoint import SavedOperator, Savepoint, delete, make
from headrace.checkpoint.rescale.folders import folders_at
from headrace.checkpoint.rescale.frozen import Parent
from headrace.inspect.versions import published
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.testing.contracts.store_model import Row


def blobs_of(machine: Machine) -> Blobs:
    return Locations(machine.folder / "local").open(machine.record.location, create=False)


def saved(machine: Machine, name: str) -> Savepoint:
    """A savepoint of a machine's newest version, all of which is published."""
    machine.drain()
    blobs, version, operator = blobs_of(machine), machine.batches - 1, machine.spec.name
    layouts = machine.record.known_layouts
    manifests = published(blobs, machine.query, operator, layouts)[version]
    folders = folders_at(machine.query, operator, layouts, version)
    parents = tuple(Parent(one, folder.groups) for one, folder in zip(manifests, folders, strict=True))
    one = SavedOperator(machine.record, version, parents, tuple(sorted(named_files(blobs, manifests))))
    savepoint = Savepoint(name, machine.query, "/ck", version, name, 0, (one,), ())
    assert make(blobs, savepoint)
    return savepoint


def branched(machine: Machine, savepoint: Savepoint, query: str, partitions: int) -> Machine:
    """A query from a savepoint, which nobody has written to since."""
    before = machine.segments()
    begin_state(blobs_of(machine), savepoint, query)
    branch = Machine(machine.spec, machine.folder, machine.mode, machine.share_bytes, query)
    branch.model, branch.batches, branch.now_us = machine.model.copy(), machine.batches, machine.now_us
    branch.record = branch_record(savepoint.operators[0], query)
    branch.rescale(partitions)
    assert machine.segments() == before, "nothing is copied or written"
    return branch


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=8, deadline=None)
@given(
    mode=st.sampled_from(COMMIT_MODES),
    share=st.sampled_from([3000, 64 << 20]),
    numbers=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    before=st.lists(BATCH, min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.booleans(), STEP), min_size=3, max_size=8),
)
def test_a_branch_and_its_original_give_what_a_model_gives(
    name: str,
    mode: CommitMode,
    share: int,
    numbers: tuple[int, int],
    before: list[Any],
    steps: list[Any],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        share = 64 << 20 if name == "memory" else share  # it never spills
        machine = Machine(replace(SPECS[name], partitions=numbers[0]), Path(folder), mode, share)
        for _, rows in before:
            machine.batch(rows)
        branch = branched(machine, saved(machine, "s"), "b", numbers[1])
        for of_branch, (step, what) in steps:
            play(branch if of_branch else machine, step, what)
        for one in (machine, branch):
            one.drain()
            one.batch([Row(key, 0, 1) for key in range(41)])


def play(machine: Machine, step: str, what: Any) -> None:
    if step in ("batch", "abort"):
        machine.batch(what, commit=step == "batch")
    elif step == "rescale":
        machine.rescale(what)
    else:
        getattr(machine, step)()


@pytest.mark.parametrize("name", SPECS)
def test_a_branch_outlives_its_original_and_gives_its_files_back(name: str, tmp_path: Path) -> None:
    """Compaction makes the files its own; then those of the original go, and in the end its own."""
    machine = Machine(replace(SPECS[name], partitions=2), tmp_path, "sync")
    draw = random.Random(3)
    for _ in range(2):
        machine.batch([drawn(draw) for _ in range(40)])
    savepoint = saved(machine, "s")
    branch = branched(machine, savepoint, "b", 3)
    blobs = blobs_of(machine)
    assert not drop_query(blobs, "q")
    delete(blobs, savepoint)
    for _ in range(60):
        branch.batch([drawn(draw) for _ in range(40)])
        branch.drain()
        if not blobs.list("q/"):
            break
    assert drop_query(blobs, "b")
    assert blobs.list("") == []


@given(rows=ROWS)
@settings(max_examples=5, deadline=None)
def test_a_branch_of_a_branch(rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(replace(SPECS["running"], partitions=2), Path(folder), "async")
        machine.batch(rows)
        first = branched(machine, saved(machine, "s"), "b", 3)
        first.batch(rows)
        second = branched(first, saved(first, "t"), "c", 1)
        drop_query(blobs_of(machine), "q")
        for one in (first, second, second):
            one.batch([Row(key, 0, 1) for key in range(41)])
