"""Protects the manifest's bytes: they come back as written, and damage is an error that helps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, StateCorrupt, StateUnsupported
from headrace.format.manifest import Manifest, SegmentEntry, decode, encode, succession_problem
from headrace.format.names import segment_name
from headrace.format.record import encode_record

int64 = st.integers(-(2**63), 2**63 - 1)
count = st.integers(0, 2**63 - 1)
entries = st.builds(
    SegmentEntry,
    name=st.builds(
        segment_name, st.integers(0, 99), st.integers(0, 9), st.integers(0, 99), st.integers(0, 99)
    ),
    size=count,
    rows=count,
    min_slice=int64,
    max_slice=int64,
    crc=st.integers(0, 2**32 - 1),
)
parents = st.one_of(st.just((None, None)), st.tuples(st.text(), st.integers(0, 9)))
manifests = st.builds(
    lambda parent, **rest: Manifest(parent_write_id=parent[0], parent_version=parent[1], **rest),
    parent=parents,
    write_id=st.text(),
    version=st.integers(10, 99),
    run=st.integers(0, 9),
    attempt=st.integers(0, 99),
    operator_digest=st.text(),
    partition=st.integers(0, 1023),
    segments=st.lists(entries, max_size=4).map(tuple),
    closed_through_us=st.none() | int64,
    frontiers_ms=st.lists(st.none() | int64, max_size=3).map(tuple),
    late_rows_total=count,
    keys=count,
    width=st.integers(1, 400),
)


def manifest(version: int = 3, **changes: object) -> Manifest:
    entry = SegmentEntry(segment_name(version, 1, 7, 0), 100, 2, 0, 0, 5)
    made = Manifest("w3", version, "w2", version - 1, 1, 7, "digest", 0, (entry,), None, (), 0, 2, 4)
    return replace(made, **changes)


@given(manifests)
def test_a_manifest_comes_back_as_written(written: Manifest) -> None:
    assert decode(encode(written), "here") == written


@given(st.data())
def test_any_changed_byte_is_noticed(data: st.DataObject) -> None:
    whole = encode(manifest())
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))
    with pytest.raises(StateCorrupt, match="some/file"):
        decode(whole[:at] + bytes([other]) + whole[at + 1 :], "some/file")


@given(st.integers(0, len(encode(manifest())) - 1))
def test_any_cut_is_noticed(length: int) -> None:
    with pytest.raises(StateCorrupt, match="some/file"):
        decode(encode(manifest())[:length], "some/file")


@given(st.binary(max_size=200))
def test_other_bytes_are_never_a_manifest(data: bytes) -> None:
    with pytest.raises(HeadraceError):
        decode(data, "some/file")


def test_a_newer_format_is_not_called_damage() -> None:
    newer = encode_record("manifest", 4, {"anything": 1})
    with pytest.raises(StateUnsupported, match=r"some/file has manifest format 4[\s\S]*release"):
        decode(newer, "some/file")


def test_another_kind_of_record_is_refused() -> None:
    with pytest.raises(StateCorrupt, match="operator 1"):
        decode(encode_record("operator", 1, {}), "some/file")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"version": 1},
        [],
        {"segments": [{"name": "x"}], "frontiers_ms": []},
    ],
)
def test_a_sound_record_with_wrong_fields_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(StateCorrupt, match="some/file"):
        decode(encode_record("manifest", 1, body), "some/file")


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "3"},
        {"keys": None},
        {"keys": True},
        {"parent_write_id": None},
        {"frontiers_ms": (1.5,)},
        {"write_id": 7},
        {"segments": (SegmentEntry(f"../{segment_name(1, 1, 1, 1)}", 1, 1, 0, 0, 0),)},
        {"segments": (SegmentEntry(segment_name(1, 1, 1, 1), None, 1, 0, 0, 0),)},  # type: ignore[arg-type]
    ],
)
def test_values_that_make_no_sense_are_never_written(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a manifest"):
        encode(manifest(**changes))


def test_a_manifest_may_follow_its_parent_only() -> None:
    parent = manifest(version=2, write_id="w2", parent_write_id=None, parent_version=None)
    assert succession_problem(parent, manifest(segments=(*parent.segments, *manifest().segments))) is None
    assert "another parent" in str(succession_problem(None, manifest()))
    assert "another parent" in str(succession_problem(parent, manifest(parent_write_id="other")))
    assert "come after" in str(succession_problem(parent, manifest(version=2, write_id="x")))


def test_a_segment_that_is_new_must_carry_the_new_version() -> None:
    parent = manifest(version=2, write_id="w2", parent_write_id=None, parent_version=None)
    strange = SegmentEntry(segment_name(1, 1, 7, 9), 1, 1, 0, 0, 0)
    assert "has the name of another one" in str(succession_problem(parent, manifest(segments=(strange,))))
