"""Protects garbage collection: old files go, what a retained version or running attempt needs stays."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.blob.memory import MemoryBlobs
from headrace.checkpoint.collect import collect, collectable, oldest_retained
from headrace.checkpoint.keep.pins import pin_name, put_pin
from headrace.checkpoint.publish import ManifestPublisher
from headrace.checkpoint.restore import restore, versions
from headrace.errors import StateCorrupt, TryAgain
from headrace.format.manifest import Manifest, SegmentEntry
from headrace.format.names import leased_name, manifest_name, parse_segment, segment_name
from headrace.testing import FaultyBlobs, ManualClock, Outcome

PREFIX = "q/o/p0000"


def entry(version: int, attempt: int = 1, sequence: int = 0) -> SegmentEntry:
    return SegmentEntry(segment_name(version, 1, attempt, sequence), 3, 1, 0, 0, 0)


def manifest(version: int, *segments: SegmentEntry, attempt: int = 1, parent: int | None = -1) -> Manifest:
    parent = (version - 1 or None) if parent == -1 else parent
    parent_id = None if parent is None else f"of {parent}"
    return Manifest(
        f"{version}-{attempt}", version, parent_id, parent, 1, attempt, "d", 0, segments, None, (), 0, 0, 3
    )


def publish(blobs: MemoryBlobs, made: Manifest) -> None:
    for segment in made.segments:
        if f"{PREFIX}/{segment.name}" not in blobs.list(""):
            blobs.put_if_absent(f"{PREFIX}/{segment.name}", b"abc")
    ManifestPublisher(blobs, PREFIX, ManualClock()).publish(made)


def segments_left(blobs: MemoryBlobs) -> set[str]:
    return {name.removeprefix(f"{PREFIX}/") for name in blobs.list("") if parse_segment(name)}


def test_the_committed_version_and_its_ancestors_are_retained() -> None:
    parents = {12: 9, 9: 5, 7: 5, 5: 4, 4: None}
    assert oldest_retained(parents.get, committed=9, retain=1) == 9
    assert oldest_retained(parents.get, committed=9, retain=2) == 5
    assert oldest_retained(parents.get, committed=12, retain=3) == 5
    assert oldest_retained(parents.get, committed=12, retain=99) == 4
    with pytest.raises(ValueError, match="at least one"):
        oldest_retained(parents.get, committed=9, retain=0)


def test_a_version_that_was_never_committed_does_not_count() -> None:
    blobs = MemoryBlobs()
    publish(blobs, manifest(1, entry(1)))
    publish(blobs, manifest(2, entry(1), entry(2)))
    publish(blobs, manifest(3, entry(1), entry(2), entry(3), attempt=2))
    publish(blobs, manifest(4, entry(4), parent=2))
    collect(blobs, PREFIX, committed=4, retain=2)
    assert versions(blobs, PREFIX) == [2, 3, 4]
    assert restore(blobs, PREFIX, 2) is not None


def test_without_a_committed_version_nothing_goes() -> None:
    blobs = MemoryBlobs()
    publish(blobs, manifest(3, entry(3)))
    assert collect(blobs, PREFIX, committed=2, retain=1) == []
    assert versions(blobs, PREFIX) == [3]


def test_manifests_go_before_segments() -> None:
    names = [
        manifest_name(1, 1, 1),
        segment_name(1, 1, 1, 0),
        manifest_name(2, 1, 1),
        segment_name(2, 1, 1, 0),
    ]
    doomed = collectable(names, {entry(2).name}, oldest=2)
    assert doomed == [manifest_name(1, 1, 1), segment_name(1, 1, 1, 0)]


def test_a_running_attempt_keeps_its_files() -> None:
    blobs = MemoryBlobs()
    publish(blobs, manifest(1, entry(1)))
    publish(blobs, manifest(2, entry(1), entry(2)))
    running = entry(3, attempt=8)
    blobs.put_if_absent(f"{PREFIX}/{running.name}", b"abc")
    collect(blobs, PREFIX, committed=2, retain=1)
    assert segments_left(blobs) == {entry(1).name, entry(2).name, running.name}
    assert versions(blobs, PREFIX) == [2]


def test_a_version_above_the_committed_one_keeps_what_it_names() -> None:
    blobs = MemoryBlobs()
    publish(blobs, manifest(1, entry(1)))
    publish(blobs, manifest(2, entry(2)))
    publish(blobs, manifest(3, entry(1), entry(3)))
    collect(blobs, PREFIX, committed=2, retain=1)
    assert restore(blobs, PREFIX, 3) is not None
    assert restore(blobs, PREFIX, 2) is not None


def test_compacted_and_abandoned_files_go() -> None:
    blobs = MemoryBlobs()
    publish(blobs, manifest(1, entry(1)))
    publish(blobs, manifest(2, entry(1), entry(2)))
    blobs.put_if_absent(f"{PREFIX}/{entry(2, attempt=5).name}", b"abandoned")
    publish(blobs, manifest(3, entry(3)))
    publish(blobs, manifest(4, entry(3), entry(4)))
    collect(blobs, PREFIX, committed=4, retain=2)
    assert segments_left(blobs) == {entry(3).name, entry(4).name}
    assert versions(blobs, PREFIX) == [3, 4]


def test_a_replaced_output_of_a_compaction_goes_with_the_last_version_that_named_it() -> None:
    blobs = MemoryBlobs()
    first, second, waiting = (
        SegmentEntry(leased_name(1, 1, number), 3, 1, 0, 0, 0) for number in (71, 72, 73)
    )
    publish(blobs, manifest(1, entry(1)))
    publish(blobs, manifest(2, first, entry(2)))
    publish(blobs, manifest(3, first, entry(3)))
    blobs.put_if_absent(f"{PREFIX}/{waiting.name}", b"abc")  # a later version may name it
    publish(blobs, manifest(4, second))
    publish(blobs, manifest(5, second, entry(5)))
    collect(blobs, PREFIX, committed=4, retain=2)
    assert segments_left(blobs) == {first.name, entry(3).name, second.name, waiting.name, entry(5).name}
    put_pin(blobs, PREFIX, "mine", [f"{PREFIX}/{name}" for name in (manifest_name(3, 1, 1), first.name)])
    collect(blobs, PREFIX, committed=5, retain=1)
    assert segments_left(blobs) == {first.name, second.name, waiting.name, entry(5).name}
    blobs.delete(pin_name(PREFIX, "mine"))
    collect(blobs, PREFIX, committed=5, retain=1)
    assert segments_left(blobs) == {second.name, waiting.name, entry(5).name}


def test_a_damaged_manifest_that_is_not_retained_goes() -> None:
    blobs = MemoryBlobs()
    blobs.put_if_absent(f"{PREFIX}/{manifest_name(1, 1, 1)}", b"garbage")
    publish(blobs, manifest(2, entry(2)))
    assert collect(blobs, PREFIX, committed=2, retain=1) == [f"{PREFIX}/{manifest_name(1, 1, 1)}"]


def test_what_is_pinned_stays_until_the_pin_goes() -> None:
    blobs = MemoryBlobs()
    publish(blobs, manifest(1, entry(1)))
    publish(blobs, manifest(2, entry(2)))
    put_pin(blobs, PREFIX, "mine", [f"{PREFIX}/{name}" for name in (manifest_name(1, 1, 1), entry(1).name)])
    assert collect(blobs, PREFIX, committed=2, retain=1) == []
    assert restore(blobs, PREFIX, 1) is not None
    blobs.delete(pin_name(PREFIX, "mine"))
    assert len(collect(blobs, PREFIX, committed=2, retain=1)) == 2
    assert segments_left(blobs) == {entry(2).name}


def test_other_partitions_and_strange_files_are_left_alone() -> None:
    blobs = MemoryBlobs()
    for name in (
        "q/o/operator.json",
        "q/o/p00001/segments/x",
        f"{PREFIX}/segments/readme.txt",
        "q/runs/00000001",
    ):
        blobs.put_if_absent(name, b"")
    publish(blobs, manifest(1, entry(1)))
    publish(blobs, manifest(2))
    before = set(blobs.list(""))
    deleted = collect(blobs, PREFIX, committed=2, retain=1)
    assert set(deleted) == {f"{PREFIX}/{manifest_name(1, 1, 1)}", f"{PREFIX}/{entry(1).name}"}
    assert set(blobs.list("")) == before - set(deleted)


def test_manifests_are_read_once() -> None:
    blobs, reads = MemoryBlobs(), []
    faulty = FaultyBlobs(blobs, lambda operation: reads.append(operation) or Outcome.DONE)
    known: dict[str, Manifest] = {}
    for version in range(1, 6):
        publish(blobs, manifest(version, entry(version)))
        reads.clear()
        collect(faulty, PREFIX, committed=version, retain=2, known=known)
        assert reads.count("read") <= 3, "one list, one new manifest, the pins"
        assert len(known) <= 2


def test_nothing_goes_when_a_retained_manifest_is_damaged() -> None:
    blobs = MemoryBlobs()
    publish(blobs, manifest(1, entry(1)))
    blobs.put_if_absent(f"{PREFIX}/{manifest_name(2, 1, 1)}", b"garbage")
    before = blobs.list("")
    with pytest.raises(StateCorrupt):
        collect(blobs, PREFIX, committed=2, retain=1)
    assert blobs.list("") == before


def test_segments_stay_while_a_manifest_could_not_be_deleted() -> None:
    blobs = MemoryBlobs()
    publish(blobs, manifest(1, entry(1)))
    publish(blobs, manifest(2))
    faulty = FaultyBlobs(
        blobs, lambda operation: Outcome.REFUSED if operation == "delete" else Outcome.DONE
    )
    with pytest.raises(TryAgain):
        collect(faulty, PREFIX, committed=2, retain=1)
    assert restore(blobs, PREFIX, 1) is not None


steps = st.lists(
    st.tuples(
        st.sampled_from(["commit", "attempt", "compact", "skip", "collect"]),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(steps)
def test_every_retained_version_restores_whatever_happened(history: list[tuple[str, int, bool]]) -> None:
    """Commits, abandoned attempts, compactions, skipped batches and collections in any order."""
    blobs, committed, version = MemoryBlobs(), [], 0
    segments: tuple[SegmentEntry, ...] = ()
    for attempt, (step, retain, published) in enumerate(history):
        parent = committed[-1][0] if committed else None
        made = entry(version, attempt)
        following = (made,) if step == "compact" else (*segments, made)
        if step in ("commit", "compact"):
            publish(blobs, manifest(version, *following, attempt=attempt, parent=parent))
            committed.append((version, following))
            segments, version = following, version + 1
        elif step == "attempt" and published:
            publish(blobs, manifest(version, *following, attempt=attempt, parent=parent))
        elif step == "attempt":
            blobs.put_if_absent(f"{PREFIX}/{made.name}", b"abc")
        elif step == "skip":
            version += 1
        elif committed:
            collect(blobs, PREFIX, committed[-1][0], retain)
            committed = committed[-retain:]
        for number, expected in committed:
            restored = restore(blobs, PREFIX, number)
            assert restored is not None
            assert restored.segments == expected
