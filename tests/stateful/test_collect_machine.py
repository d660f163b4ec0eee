"""Protects files against the collector: with versions, changes of the number of partitions, pins and
collectors that die between any two requests, nothing that is named goes. In the end nothing else is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.blob.memory import MemoryBlobs
from headrace.checkpoint.collect import collect
from headrace.checkpoint.keep.condemned import condemned_files
from headrace.checkpoint.keep.pins import pin_name, put_pin
from headrace.checkpoint.rescale.derive import derived_for
from headrace.checkpoint.rescale.folders import folders_at
from headrace.checkpoint.rescale.frozen import Parent
from headrace.checkpoint.restore import read_manifest
from headrace.format import names
from headrace.format.manifest import Derived, Manifest, SegmentEntry, encode, succession_problem
from headrace.format.names import (
    blob_name,
    home_of,
    leased_name,
    leased_through,
    operator_prefix,
    parse_manifest,
    segment_name,
)
from headrace.plan.partitions.layouts import Layout, first_layout, rescaled

PREFIX = operator_prefix("q", "o")
RETAIN = 3
STEP = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 7)),
    st.tuples(st.just("commit"), st.integers(0, 7)),
    st.tuples(st.just("rescale"), st.integers(1, 5)),
    st.tuples(st.just("collect"), st.integers(0, 12)),
    st.tuples(st.just("collect"), st.just(99)),
    st.tuples(st.just("pin"), st.integers(0, 2)),
    st.tuples(st.just("unpin"), st.integers(0, 2)),
    st.tuples(st.just("late"), st.just(0)),
    st.tuples(st.just("compact"), st.integers(0, 7)),
    st.tuples(st.just("compact"), st.integers(0, 7)),
    st.tuples(st.just("meanwhile"), st.integers(0, 7)),
)


class Died(Exception):
    """The process ended."""


class MortalBlobs(MemoryBlobs):
    """Ends its process after a number of writes."""

    left = 1 << 30
    meanwhile: Any = None  # runs once, before the next write

    def spend(self) -> None:
        run, self.meanwhile = self.meanwhile, None
        if run is not None:
            run()
        if self.left == 0:
            raise Died
        self.left -= 1

    def put_if_absent(self, name: str, data: bytes) -> None:
        self.spend()
        super().put_if_absent(name, data)

    def delete(self, name: str) -> None:
        self.spend()
        super().delete(name)

    @contextmanager
    def lasting(self, writes: int) -> Iterator[None]:
        self.left = writes
        try:
            with suppress(Died):
                yield
        finally:
            self.left = 1 << 30


@dataclass
class Machine:
    """One operator; versions and pins as plain sets of names."""

    blobs: MortalBlobs = field(default_factory=MortalBlobs)
    layouts: tuple[Layout, ...] = first_layout(2)
    version: int = -1
    run: int = 1
    pins: dict[int, list[str]] = field(default_factory=dict)
    names: dict[int, list[str]] = field(default_factory=dict)  # of each version, its manifests
    ever: set[str] = field(default_factory=set)  # segments that some version has named
    outputs: dict[int, SegmentEntry] = field(default_factory=dict)  # of compactions; not named
    jobs: int = 1000  # no attempt has such a number

    def commit(self, keeps: int) -> None:
        """The next version: each partition has a new segment, and some of those before."""
        folders = folders_at("q", "o", self.layouts, self.version + 1)
        bases = self._bases()
        self.version += 1
        written = []
        for number, folder in enumerate(folders):
            entry = SegmentEntry(segment_name(self.version, self.run, number, 0), 3, 5, 0, 0, 0)
            self.blobs.put_if_absent(blob_name(folder.prefix, entry.name), b"abc")
            base = bases[number] if bases else None
            kept = () if base is None else tuple(e for at, e in enumerate(base.segments) if at < keeps)
            output = self.outputs.pop(number, None)
            if output is not None and leased_through(output.name) >= self.version:
                kept = (*kept, output)
            made = manifest(self.version, self.run, number, (*kept, entry), base)
            assert succession_problem(base, made) is None or isinstance(base, Derived)
            name = f"{folder.prefix}/{made.name}"
            self.blobs.put_if_absent(name, encode(made))
            written.append(name)
        self.names[self.version] = written
        self.ever |= {file for name in written for file in segments_of(self.blobs, name)}

    def _bases(self) -> list[Manifest]:
        if self.version < 0:
            return []
        folders = folders_at("q", "o", self.layouts, self.version + 1)
        old = folders_at("q", "o", self.layouts, self.version)
        if old == folders:
            return [read_manifest(self.blobs, name) for name in self.names[self.version]]
        parents = [Parent(n, f.groups) for n, f in zip(self.names[self.version], old, strict=True)]
        return [
            derived_for(self.blobs, parents, folder.groups, number) for number, folder in enumerate(folders)
        ]

    def compact(self, number: int) -> None:
        """A compaction uploads its output; some commit may name it, or its host dies before that."""
        folders = folders_at("q", "o", self.layouts, max(0, self.version))
        is_changing = folders != folders_at("q", "o", self.layouts, self.version + 1)
        if self.version < 0 or number >= len(folders) or is_changing:
            return
        self.jobs += 1
        entry = SegmentEntry(leased_name(self.version, self.run, self.jobs), 3, 5, 0, 0, 0)
        self.blobs.put_if_absent(blob_name(folders[number].prefix, entry.name), b"abc")
        self.outputs[number] = entry

    def meanwhile(self, number: int) -> None:
        """A version names a finished output between a collector's look at storage and its deletions."""
        if self.version < 1:
            return
        self.compact(number)
        self.blobs.meanwhile = lambda: self.commit(2)
        self.collect(99)
        self.blobs.meanwhile = None

    def rescale(self, partitions: int) -> None:
        self.run += 1
        self.outputs = {}  # of the old layout's hosts
        base = self.version if self.version >= 0 else None
        self.layouts = rescaled(self.layouts, base, partitions)

    def collect(self, writes: int) -> None:
        if self.version < 1:
            return
        folders = [folder.prefix for folder in folders_at("q", "o", self.layouts, self.version)]
        with self.blobs.lasting(writes):
            collect(self.blobs, PREFIX, self.version - 1, RETAIN, folders=folders)

    def pin(self, owner: int) -> None:
        """Pins the newest version, or a retained one, as a savepoint does: pin, then look at the lists."""
        if self.version < 1 or owner in self.pins:
            return
        manifests = self.names[max(0, self.version - owner)]
        named = {name for one in manifests for name in (one, *segments_of(self.blobs, one))}
        put_pin(self.blobs, PREFIX, f"{owner}", named)
        if named & condemned_files(self.blobs, PREFIX) or not named <= set(self.blobs.list("")):
            self.blobs.delete(pin_name(PREFIX, f"{owner}"))
        else:
            self.pins[owner] = manifests

    def unpin(self, owner: int) -> None:
        if self.pins.pop(owner, None):
            self.blobs.delete(pin_name(PREFIX, f"{owner}"))

    def late(self, _: int) -> None:
        """An attempt of an earlier start writes a segment of the running batch, and ends."""
        name = f"{PREFIX}/p0000/{segment_name(self.version + 1, self.run, 99, 0)}"
        if name not in self.blobs.list(""):
            self.blobs.put_if_absent(name, b"abc")

    def named(self) -> set[str]:
        """All that a retained version or a pin names."""
        retained = [self.names[v] for v in range(max(0, self.version - RETAIN), self.version + 1)]
        manifests = {name for names in (*retained, *self.pins.values()) for name in names}
        return manifests | {file for name in manifests for file in segments_of(self.blobs, name)}


def manifest(version: int, run: int, number: int, segments: Any, base: Manifest | None) -> Manifest:
    parent = (None, None) if base is None else (base.write_id, base.version)
    rest = (run, 1, "d", number, segments, None, (), 0, 5, 3)
    return Manifest(f"{version}-{number}", version, *parent, *rest)


def segments_of(blobs: MemoryBlobs, name: str) -> list[str]:
    if name not in blobs.list(name):
        return []
    return [blob_name(home_of(name), entry.name) for entry in read_manifest(blobs, name).segments]


@pytest.fixture(autouse=True, params=[2, 500])
def leases(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Some that end, and some that do not."""
    monkeypatch.setattr(names, "LEASE", request.param)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, min_size=8, max_size=40))
def test_nothing_named_goes_and_nothing_else_stays(steps: list[Any]) -> None:
    machine = Machine()
    for step, what in steps:
        getattr(machine, step)(what)
        assert machine.named() <= set(machine.blobs.list("")), f"after {step}"
    machine.outputs = {}  # the hosts die, and what they have not named is to go
    for _ in range(RETAIN + 4):
        machine.commit(1)
    machine.collect(99)
    machine.collect(99)
    committed = machine.version - 1
    oldest = committed - RETAIN + 1
    expected = machine.named() | {n for v in range(oldest, committed + 2) for n in machine.names[v]}
    left = {name for name in machine.blobs.list("") if "/pins/" not in name}
    waiting = {name for name in left - machine.ever if is_leased(name, machine.version)}
    assert {name for name in left - waiting if not is_late(name)} == expected


def is_leased(name: str, version: int) -> bool:
    """An output that no version has named: one still may."""
    return parse_manifest(name) is None and leased_through(name) > version + 1


def is_late(name: str) -> bool:
    """A segment of the newest batches that no manifest names: an attempt may be writing it."""
    return "-a000000000099-" in name and parse_manifest(name) is None
