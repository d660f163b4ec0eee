"""Protects file names: they sort as their numbers do, parse back, and never collide or escape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.blob.base import check_name
from headrace.format import names

versions, runs, attempts = st.integers(0, 10**12 - 1), st.integers(0, 10**8 - 1), st.integers(0, 10**12 - 1)
stamps = st.tuples(versions, runs, attempts)
sequences = st.integers(0, 10**6 - 1)


@given(stamps, stamps)
def test_manifest_names_sort_as_their_numbers(left, right) -> None:
    assert (names.manifest_name(*left) < names.manifest_name(*right)) == (left < right)


@given(stamps, sequences, stamps, sequences)
def test_segment_names_sort_as_their_numbers(left, first, right, second) -> None:
    smaller = names.segment_name(*left, first) < names.segment_name(*right, second)
    assert smaller == ((*left, first) < (*right, second))


@given(stamps, sequences)
def test_names_parse_back_with_and_without_folders(stamp, sequence) -> None:
    manifest, segment = names.manifest_name(*stamp), names.segment_name(*stamp, sequence)
    for name in (manifest, f"q/o/p0001/{manifest}", manifest.rpartition("/")[2]):
        assert names.parse_manifest(name) == stamp
        assert names.parse_segment(name) is None
    parsed = names.parse_segment(f"q/o/p0001/{segment}")
    assert parsed == names.SegmentId(names.Attempt(*stamp), sequence)
    assert names.parse_manifest(segment) is None


@given(stamps)
def test_all_manifests_of_a_version_share_a_start(stamp) -> None:
    full = f"q/o/p0001/{names.manifest_name(*stamp)}"
    assert full.startswith(names.manifests_of("q/o/p0001", stamp[0]))
    assert not full.startswith(names.manifests_of("q/o/p0001", (stamp[0] + 1) % 10**12))


@pytest.mark.parametrize(
    "name",
    ["", "v1-r1-a1.manifest", "x.manifest", "operator.json", "notes.segment", "00000001\n", "\u0660" * 8],
)
def test_other_files_are_not_ours(name: str) -> None:
    assert names.parse_manifest(name) is None
    assert names.parse_segment(name) is None
    assert names.parse_run(name) is None


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        names.manifest_name(10**12, 1, 1)
    with pytest.raises(ValueError, match="does not fit"):
        names.manifest_name(-2, 1, 1)


def test_initial_state_sorts_before_the_first_batch() -> None:
    initial, first = names.manifest_name(names.INITIAL, 1, 0), names.manifest_name(0, 1, 0)
    assert initial < first
    assert names.parse_manifest(initial) == (-1, 1, 0)
    segment = names.parse_segment(names.segment_name(-1, 1, 0, 7))
    assert segment is not None
    assert segment.attempt.version == -1


awkward = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="./%~\\ runs\0", max_size=8),
    st.text(min_size=60, max_size=400),
    st.sampled_from(
        ["", ".", "..", "runs", "%72uns", "%", "a/b", "a%2Fb", ".hidden", "ünïcode", "x" * 200]
    ),
)


@given(awkward, awkward)
def test_components_are_safe_and_distinct(left: str, right: str) -> None:
    for name in (left, right):
        made = names.component(name)
        check_name(made)
        assert "/" not in made
        assert made != names.RUNS
        assert len(made) <= 200
        assert made.isascii()
    assert (names.component(left) == names.component(right)) == (left == right)


def test_a_short_plain_name_is_left_alone() -> None:
    plain = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    assert names.component(plain) == plain
    assert names.partition_prefix(plain, "counts", 3) == f"{plain}/counts/p0003"


def test_long_names_that_differ_at_the_end_stay_distinct() -> None:
    assert names.component("x" * 300 + "a") != names.component("x" * 300 + "b")


def test_an_operator_cannot_pose_as_the_runs() -> None:
    assert not names.operator_prefix("q", "runs").startswith("q/runs")
    assert names.run_record("q", 12) == "q/runs/00000012"
    assert names.parse_run(names.run_record("q", 12)) == 12
