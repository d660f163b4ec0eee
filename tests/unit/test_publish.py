"""Protects publishing and restoring: a version is what one writer published, or an error that helps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.blob.memory import MemoryBlobs
from headrace.blob.retry import Retry
from headrace.checkpoint.publish import ManifestPublisher
from headrace.checkpoint.restore import restore, versions
from headrace.errors import Fenced, MaybeApplied, StateCorrupt, StateMissing, TryAgain
from headrace.format.manifest import Manifest, SegmentEntry, encode
from headrace.format.names import segment_name
from headrace.testing import FaultyBlobs, ManualClock, Outcome, seeded_outcomes

PREFIX = "q/o/p0000"


def manifest(
    version: int = 1, *, run: int = 1, attempt: int = 1, parent: Manifest | None = None
) -> Manifest:
    entry = SegmentEntry(segment_name(version, run, attempt, 0), 3, 1, 0, 0, 0)
    return Manifest(
        write_id=f"w{version}-{run}-{attempt}",
        version=version,
        parent_write_id=parent.write_id if parent else None,
        parent_version=parent.version if parent else None,
        run=run,
        attempt=attempt,
        operator_digest="d",
        partition=0,
        segments=(*(parent.segments if parent else ()), entry),
        closed_through_us=None,
        frontiers_ms=(),
        late_rows_total=0,
        keys=1,
        width=3,
    )


def commit(blobs: MemoryBlobs, made: Manifest) -> Manifest:
    blobs.put_if_absent(f"{PREFIX}/{made.segments[-1].name}", b"abc")
    ManifestPublisher(blobs, PREFIX, ManualClock()).publish(made)
    return made


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


def test_what_was_published_is_restored(blobs: MemoryBlobs) -> None:
    first = commit(blobs, manifest(1))
    second = commit(blobs, manifest(4, parent=first))
    assert restore(blobs, PREFIX, 1) == first
    assert restore(blobs, PREFIX, 4) == second
    assert versions(blobs, PREFIX) == [1, 4]


@pytest.mark.parametrize("first", list(Outcome))
@pytest.mark.parametrize("second", list(Outcome))
def test_publishing_survives_lost_replies(blobs: MemoryBlobs, first: Outcome, second: Outcome) -> None:
    planned = iter([first, second])
    faulty = FaultyBlobs(blobs, lambda operation: next(planned, Outcome.DONE))
    ManifestPublisher(faulty, PREFIX, ManualClock()).publish(manifest())
    assert blobs.get(f"{PREFIX}/{manifest().name}") == encode(manifest())


@pytest.mark.parametrize("seed", range(60))
def test_publishing_never_claims_what_is_not_there(blobs: MemoryBlobs, seed: int) -> None:
    clock = ManualClock()
    publisher = ManifestPublisher(
        FaultyBlobs(blobs, seeded_outcomes(seed, 0.8)), PREFIX, clock, Retry(tries=3)
    )
    try:
        publisher.publish(manifest())
    except TryAgain:
        assert versions(blobs, PREFIX) == []
    except MaybeApplied:
        pass
    else:
        assert versions(blobs, PREFIX) == [1]
    assert len(clock.slept_ms) <= 2


def test_publishing_the_same_write_again_is_harmless(blobs: MemoryBlobs) -> None:
    commit(blobs, manifest())
    ManifestPublisher(blobs, PREFIX, ManualClock()).publish(manifest())


def test_another_write_of_the_same_attempt_is_fenced(blobs: MemoryBlobs) -> None:
    commit(blobs, manifest())
    with pytest.raises(Fenced, match="w1-1-1"):
        ManifestPublisher(blobs, PREFIX, ManualClock()).publish(replace(manifest(), write_id="another"))
    assert restore(blobs, PREFIX, 1) == manifest()


def test_a_damaged_manifest_in_the_way_is_called_damaged(blobs: MemoryBlobs) -> None:
    blobs.put_if_absent(f"{PREFIX}/{manifest().name}", b"garbage")
    with pytest.raises(StateCorrupt, match=manifest().name):
        ManifestPublisher(blobs, PREFIX, ManualClock()).publish(manifest())


def test_a_parent_that_was_removed_stops_the_next_version(blobs: MemoryBlobs) -> None:
    parent = commit(blobs, manifest(1))
    blobs.delete(f"{PREFIX}/{parent.name}")
    with pytest.raises(StateMissing, match="removed while the query was running"):
        ManifestPublisher(blobs, PREFIX, ManualClock()).publish(manifest(2, parent=parent), parent)
    assert versions(blobs, PREFIX) == []


def test_a_segment_that_was_removed_stops_the_next_version(blobs: MemoryBlobs) -> None:
    parent = commit(blobs, manifest(1))
    child = manifest(2, parent=parent)
    blobs.put_if_absent(f"{PREFIX}/{child.segments[-1].name}", b"abc")
    blobs.delete(f"{PREFIX}/{parent.segments[0].name}")
    with pytest.raises(StateMissing, match=f"{parent.segments[0].name} is gone"):
        ManifestPublisher(blobs, PREFIX, ManualClock()).publish(child, parent)
    assert versions(blobs, PREFIX) == [1]


def test_a_manifest_cannot_follow_a_stranger(blobs: MemoryBlobs) -> None:
    stranger = commit(blobs, manifest(1, attempt=9))
    with pytest.raises(ValueError, match="another parent"):
        ManifestPublisher(blobs, PREFIX, ManualClock()).publish(manifest(2, parent=manifest(1)), stranger)


def test_without_a_base_there_is_nothing_to_restore(blobs: MemoryBlobs) -> None:
    commit(blobs, manifest(0))
    assert restore(blobs, PREFIX, None) is None


def test_the_newest_run_and_attempt_of_a_version_counts(blobs: MemoryBlobs) -> None:
    commit(blobs, manifest(1, run=2, attempt=3))
    commit(blobs, manifest(1, run=2, attempt=12))
    commit(blobs, manifest(1, run=1, attempt=99))
    commit(blobs, manifest(2, run=3, attempt=1))
    newest = restore(blobs, PREFIX, 1)
    assert newest is not None
    assert (newest.run, newest.attempt) == (2, 12)


def test_a_missing_version_names_what_is_there(blobs: MemoryBlobs) -> None:
    commit(blobs, manifest(1))
    commit(blobs, manifest(3))
    with pytest.raises(StateMissing, match=r"version 2 .*versions there: 1, 3[\s\S]*state\.location"):
        restore(blobs, PREFIX, 2)


def test_an_empty_location_is_not_an_empty_state(blobs: MemoryBlobs) -> None:
    with pytest.raises(StateMissing, match=r"version 0 .*no version is there"):
        restore(blobs, PREFIX, 0)


def test_a_missing_segment_is_named_with_its_version(blobs: MemoryBlobs) -> None:
    made = commit(blobs, manifest(5))
    blobs.delete(f"{PREFIX}/{made.segments[0].name}")
    with pytest.raises(StateMissing, match=rf"{made.segments[0].name} is missing: version 5[\s\S]*backup"):
        restore(blobs, PREFIX, 5)


def test_a_truncated_segment_is_named_with_its_version(blobs: MemoryBlobs) -> None:
    made = commit(blobs, manifest(5))
    blobs.delete(f"{PREFIX}/{made.segments[0].name}")
    blobs.put_if_absent(f"{PREFIX}/{made.segments[0].name}", b"ab")
    with pytest.raises(StateCorrupt, match=r"has 2 bytes, and 3 in version 5"):
        restore(blobs, PREFIX, 5)


def test_a_damaged_newest_manifest_is_not_replaced_by_an_older_attempt(blobs: MemoryBlobs) -> None:
    commit(blobs, manifest(1, attempt=1))
    blobs.put_if_absent(f"{PREFIX}/{manifest(1, attempt=2).name}", b"garbage")
    with pytest.raises(StateCorrupt, match=manifest(1, attempt=2).name):
        restore(blobs, PREFIX, 1)


def test_a_manifest_under_a_wrong_name_is_refused(blobs: MemoryBlobs) -> None:
    made = commit(blobs, manifest(1))
    blobs.put_if_absent(f"{PREFIX}/{manifest(2).name}", encode(made))
    with pytest.raises(StateCorrupt, match="holds the manifest of version 1"):
        restore(blobs, PREFIX, 2)
