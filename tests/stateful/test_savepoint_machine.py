"""Protects files that several queries name: nothing that is named goes. Savepoints, branches, other numbers
of partitions, dropped queries and collectors are each killed between any two writes, or run in the middle
of another. Once all owners are gone, the location is empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_collect_machine import Died, MortalBlobs, manifest, segments_of

from headrace.checkpoint.collect import collect
from headrace.checkpoint.keep.branch import begin_state, branch_record
from headrace.checkpoint.keep.dropped import drop_query
from headrace.checkpoint.keep.pins import named_files
from headrace.checkpoint.keep.savepoint import SavedOperator, Savepoint, delete, make, names_of, read
from headrace.checkpoint.records import OperatorRecord
from headrace.checkpoint.rescale.derive import derived_for
from headrace.checkpoint.rescale.folders import folders_at
from headrace.checkpoint.rescale.frozen import Parent, read_frozen
from headrace.checkpoint.restore import read_manifest
from headrace.errors import HeadraceError
from headrace.format.manifest import Manifest, SegmentEntry, encode
from headrace.format.names import blob_name, operator_prefix, segment_name
from headrace.plan.partitions.layouts import layout_at, rescaled
from headrace.plan.spec import Accumulator, Field, Fold, OperatorSpec

RETAIN = 2
WORK = Fold((Accumulator("count", None, "int64"),))
SPEC = OperatorSpec("o", (Field("k0", "int64", "k"),), (), WORK, None, "changes", False, (), 2)
EMPTY = OperatorRecord("/state", SPEC, ())
ALIVE = 99  # writes: more than any step has


@dataclass
class Query:
    """One query with one operator; `names` are the manifests of each version."""

    name: str
    record: OperatorRecord = EMPTY
    version: int = -1
    run: int = 1
    names: dict[int, list[str]] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return operator_prefix(self.name, "o")

    @property
    def begins_at(self) -> int:
        """The first version of its own."""
        return max(0, self.record.known_layouts[0].since)

    def parents(self, blobs: MortalBlobs) -> list[Parent]:
        """The manifests of the newest version; for a branch that has not run, those of its original."""
        if layout_at(self.record.known_layouts, self.version) is None:
            return read_frozen(blobs, self.record.known_layouts[0].parents)
        folders = folders_at(self.name, "o", self.record.known_layouts, self.version)
        return [Parent(n, f.groups) for n, f in zip(self.names[self.version], folders, strict=True)]

    def bases(self, blobs: MortalBlobs) -> list[Manifest]:
        if self.version < 0:
            return []
        folders = folders_at(self.name, "o", self.record.known_layouts, self.version + 1)
        if self.version >= self.begins_at:
            old = folders_at(self.name, "o", self.record.known_layouts, self.version)
            if old == folders:
                return [read_manifest(blobs, name) for name in self.names[self.version]]
        parents = self.parents(blobs)
        return [derived_for(blobs, parents, folder.groups, at) for at, folder in enumerate(folders)]

    def commit(self, blobs: MortalBlobs, keeps: int) -> None:
        """The next version: each partition has a new segment, and some of those before."""
        bases, written = self.bases(blobs), []
        folders = folders_at(self.name, "o", self.record.known_layouts, self.version + 1)
        for number, folder in enumerate(folders):
            entry = SegmentEntry(segment_name(self.version + 1, self.run, number, 0), 3, 5, 0, 0, 0)
            blobs.put_if_absent(blob_name(folder.prefix, entry.name), b"abc")
            base = bases[number] if bases else None
            kept = () if base is None else base.segments[:keeps]
            made = manifest(self.version + 1, self.run, number, (*kept, entry), base)
            blobs.put_if_absent(f"{folder.prefix}/{made.name}", encode(made))
            written.append(f"{folder.prefix}/{made.name}")
        self.version += 1
        self.names[self.version] = written
        self.record = self.record.began(self.version)

    def rescale(self, partitions: int) -> None:
        self.run += 1
        base = self.version if self.version >= 0 else None
        layouts = rescaled(self.record.known_layouts, base, partitions)
        self.record = replace(self.record, spec=replace(SPEC, partitions=partitions), layouts=layouts)

    def collect(self, blobs: MortalBlobs) -> None:
        if self.version <= self.begins_at:
            return
        folders = [
            one.prefix for one in folders_at(self.name, "o", self.record.known_layouts, self.version)
        ]
        collect(blobs, self.prefix, self.version - 1, RETAIN, folders=folders)

    def retained(self) -> list[str]:
        newest = range(max(self.begins_at, self.version - RETAIN), self.version + 1)
        return [name for version in newest for name in self.names.get(version, [])]


@dataclass
class World:
    """A state location; `over` are owners that are being removed, and need nothing any more."""

    blobs: MortalBlobs = field(default_factory=MortalBlobs)
    queries: dict[str, Query] = field(default_factory=lambda: {"q0": Query("q0")})
    unborn: dict[str, Savepoint] = field(default_factory=dict)  # branches that broke off
    over: set[str] = field(default_factory=set)
    dropped: Query | None = None
    made: int = 0

    def query(self, number: int) -> Query | None:
        alive = sorted(self.queries)
        return self.queries[alive[number % len(alive)]] if alive else None

    def savepoints(self) -> list[Savepoint]:
        return [read(self.blobs, *key) for key, done in sorted(names_of(self.blobs).items()) if done]

    def commit(self, number: int, what: int, _: int) -> None:
        if query := self.query(number):
            query.commit(self.blobs, what % 4)

    def rescale(self, number: int, what: int, _: int) -> None:
        if query := self.query(number):
            query.rescale(1 + what % 4)

    def collect(self, number: int, _: int, writes: int) -> None:
        if query := self.query(number):
            with self.blobs.lasting(writes):
                query.collect(self.blobs)

    def save(self, number: int, _: int, writes: int) -> None:
        query = self.query(number)
        if query is not None and query.version >= 0:
            self.made += 1
            with self.blobs.lasting(writes):
                make(self.blobs, saved(self.blobs, query, f"s{self.made}"))

    def unsave(self, number: int, _: int, writes: int) -> None:
        keys = sorted(names_of(self.blobs))
        if keys:
            savepoint = read(self.blobs, *keys[number % len(keys)])
            with self.blobs.lasting(writes):
                delete(self.blobs, savepoint)

    def branch(self, number: int, _: int, writes: int) -> None:
        savepoints = self.savepoints()
        if savepoints:
            self.made += 1
            self.unborn[f"q{self.made}"] = savepoints[number % len(savepoints)]
            self.bear(f"q{self.made}", writes)

    def again(self, number: int, _: int, writes: int) -> None:
        """A branch that broke off is begun again, if its savepoint is still there."""
        if self.unborn:
            name = sorted(self.unborn)[number % len(self.unborn)]
            if self.unborn[name] in self.savepoints():
                self.bear(name, writes)

    def bear(self, name: str, writes: int) -> None:
        savepoint = self.unborn[name]
        with self.blobs.lasting(writes):
            begin_state(self.blobs, savepoint, name)
            one = savepoint.operators[0]
            run = 1 + max(int(parent.manifest.rpartition("-r")[2][:8]) for parent in one.parents)
            self.queries[name] = Query(name, branch_record(one, name), int(one.version or 0), run)
            del self.unborn[name]

    def drop(self, number: int, what: int, writes: int) -> None:
        if len(self.queries) > 1 and what % 2 == 0:
            query = self.query(number)
            assert query is not None
            self.over.add(self.queries.pop(query.name).name)
        over = sorted(self.over)
        if over:
            with self.blobs.lasting(writes):
                drop_query(self.blobs, over[number % len(over)])

    def named(self) -> set[str]:
        """All that queries and complete savepoints need."""
        manifests = {name for query in self.queries.values() for name in query.retained()}
        for query in self.queries.values():
            if query.version < query.begins_at:
                manifests |= {parent.manifest for parent in query.parents(self.blobs)}
        for savepoint in self.savepoints():
            manifests |= {parent.manifest for one in savepoint.operators for parent in one.parents}
        return manifests | {file for name in manifests for file in segments_of(self.blobs, name)}

    def refuse_missing(self, after: str) -> None:
        assert self.named() <= set(self.blobs.list("")), f"after {after}"

    def end(self) -> None:
        for query, name in sorted(names_of(self.blobs)):
            delete(self.blobs, read(self.blobs, query, name))
        for name in (*self.over, *self.unborn, *self.queries):
            drop_query(self.blobs, name)
        assert self.blobs.list("") == []


def saved(blobs: MortalBlobs, query: Query, name: str) -> Savepoint:
    """The savepoint of a query's newest version."""
    parents = query.parents(blobs)
    origins = named_files(blobs, [parent.manifest for parent in parents])
    one = SavedOperator(query.record, query.version, tuple(parents), tuple(sorted(origins)))
    return Savepoint(name, query.name, "/ck", query.version, f"of-{name}", 0, (one,), ())


STEPS = ("commit", "commit", "rescale", "collect", "save", "unsave", "branch", "again", "drop")
STEP = st.tuples(
    st.sampled_from(STEPS),
    st.integers(0, 7),
    st.integers(0, 7),
    st.sampled_from([0, 1, 2, 3, 5, 8, ALIVE, ALIVE]),
)


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, min_size=8, max_size=50))
def test_nothing_named_goes_and_in_the_end_nothing_stays(steps: list[Any]) -> None:
    world = World()
    for step, *rest in [("commit", 0, 3, 0), ("commit", 0, 3, 0), ("save", 0, 0, ALIVE), *steps]:
        getattr(world, step)(*rest)
        world.refuse_missing(step)
    world.end()


@pytest.mark.parametrize("keeps", [0, 3])
def test_a_branch_alone_keeps_what_it_names_and_then_only_its_own(keeps: int) -> None:
    world = World()
    for _ in range(3):
        world.commit(0, 3, 0)
    world.save(0, 0, ALIVE)
    world.branch(0, 0, ALIVE)
    branch = next(name for name in world.queries if name != "q0")
    world.unsave(0, 0, ALIVE)
    world.queries.pop("q0")
    assert not drop_query(world.blobs, "q0")
    for _ in range(RETAIN + 2):
        world.queries[branch].commit(world.blobs, keeps)
        world.collect(0, 0, ALIVE)
        world.refuse_missing("commit")
    foreign = {name for name in world.blobs.list("") if not name.startswith(branch)}
    assert (foreign == set()) == (keeps == 0), "files of the original go when the branch needs none"


# ── one step in the middle of another ────────────────────────────────────────────────────────────


class Interrupted(MortalBlobs):
    """Runs another step before the n-th write."""

    other: Callable[[], None] | None = None

    def spend(self) -> None:
        if self.left == 0 and self.other is not None:
            other, self.other, self.left = self.other, None, 1 << 30
            other()
        super().spend()

    @contextmanager
    def interrupted(self, writes: int, other: Callable[[], None]) -> Iterator[None]:
        self.left, self.other = writes, other
        try:
            yield
        finally:
            self.left, self.other = 1 << 30, None


def prepared(blobs: Interrupted) -> World:
    """An original that has gone on, with a savepoint of a version that nothing else retains."""
    world = World(blobs)
    for _ in range(3):
        world.commit(0, 3, 0)
    world.save(0, 0, ALIVE)
    for _ in range(RETAIN + 2):
        world.commit(0, 0, 0)
    return world


def collecting(world: World) -> None:
    if query := world.queries.get("q0"):
        query.collect(world.blobs)


def dropping(world: World) -> None:
    world.dropped = world.queries.pop("q0", world.dropped)
    drop_query(world.blobs, "q0")


def unsaving(world: World) -> None:
    world.unsave(0, 0, ALIVE)


def branching(world: World) -> None:
    """As `hr.start` does: a savepoint that is gone, or goes meanwhile, is an error."""
    savepoints = world.savepoints()
    if savepoints:
        begin_state(world.blobs, savepoints[0], "b")
        one = savepoints[0].operators[0]
        world.queries["b"] = Query("b", branch_record(one, "b"), int(one.version or 0), 9)


def saving(world: World) -> None:
    """Of an old version, which the collector may be deleting."""
    query = world.queries.get("q0", world.dropped)
    if query is not None:
        earlier = replace(query, version=query.version - RETAIN - 1)
        make(world.blobs, saved(world.blobs, earlier, "old"))


ACTIONS = [collecting, dropping, unsaving, branching, saving]


@pytest.mark.parametrize("first", ACTIONS)
@pytest.mark.parametrize("second", ACTIONS)
def test_a_step_in_the_middle_of_another(
    first: Callable[[World], None], second: Callable[[World], None]
) -> None:
    for writes in range(30):
        blobs = Interrupted()
        world = prepared(blobs)
        with blobs.interrupted(writes, lambda: attempt(second, world)):  # noqa: B023
            attempt(first, world)
            was_due = blobs.other is None
        world.refuse_missing(f"{second.__name__} before write {writes} of {first.__name__}")
        world.over |= {"q0", "b"}
        world.end()
        if not was_due:
            return


def attempt(action: Callable[[World], None], world: World) -> None:
    with suppress(HeadraceError, Died):
        action(world)
