"""Protects the choice of the version a batch starts from, and the record that remembers it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from host_fakes import counting
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.records import OperatorRecord, opened, record_name
from headrace.errors import OperatorChanged, SettingError, StateCorrupt, StateMissing, StateUnsupported
from headrace.plan.epochs import base_of, begin_batch


def test_the_base_is_the_batch_begun_before() -> None:
    assert base_of([], 0) is None
    assert base_of([0, 1, 2], 3) == 2
    assert base_of([0, 1, 2], 2) == 1, "a replay starts where the first attempt started"
    assert base_of([0], 0) is None
    assert base_of([0, 4], 9) == 4, "batches that pruned the operator are not versions"


def test_a_rollback_forgets_what_was_above() -> None:
    assert begin_batch([0, 1, 2, 3], 1) == [0, 1]
    assert begin_batch([0, 5], 3) == [0, 3]


def test_history_is_bounded() -> None:
    begun: list[int] = []
    for batch in range(1000):
        begun = begin_batch(begun, batch, history=7)
    assert begun == [0, *range(994, 1000)]
    assert base_of(begun, 500) == 0, "a step back beyond the history asks for a version that is gone"


@given(st.lists(st.integers(0, 50), max_size=60))
def test_any_order_of_begins_keeps_bases_right(batches: list[int]) -> None:
    begun: list[int] = []
    model: set[int] = set()
    for batch in batches:
        begun = begin_batch(begun, batch)
        model = {number for number in model if number < batch} | {batch}
        assert begun == sorted(model)
        assert base_of(begun, batch) == max(model - {batch}, default=None)


SPEC = counting()
RECORD = OperatorRecord("/state", SPEC, (0, 1))


def test_a_record_survives_json() -> None:
    assert OperatorRecord.from_json(RECORD.to_json(), "x") == RECORD
    assert RECORD.began(2).begun == (0, 1, 2)
    assert RECORD.began(1) == RECORD


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', RECORD.to_json()[:-20]])
def test_a_damaged_record_is_named(text: str) -> None:
    with pytest.raises(StateCorrupt, match=r"ck/counts\.json"):
        OperatorRecord.from_json(text, "ck/counts.json")


def test_a_record_of_a_later_format_is_refused() -> None:
    with pytest.raises(StateUnsupported, match="format 2"):
        OperatorRecord.from_json(RECORD.to_json().replace('"format": 1', '"format": 2'), "x")


def test_a_missing_record_is_fine_only_at_the_start() -> None:
    assert opened(None, SPEC, "/state", 0, new=False, path="x").begun == ()
    assert opened(None, SPEC, "/state", 4, new=True, path="x").begun == ()
    with pytest.raises(StateMissing, match=r"batch 4: ck/x.json is not there.*\n.*state\.new=true"):
        opened(None, SPEC, "/state", 4, new=False, path="ck/x.json")


def test_another_location_is_refused() -> None:
    with pytest.raises(SettingError, match=r"lies in /state, but the state location is /other"):
        opened(RECORD, SPEC, "/other", 2, new=False, path="x")


def test_another_operator_is_refused() -> None:
    with pytest.raises(OperatorChanged, match="is not the one that wrote"):
        opened(RECORD, replace(SPEC, keys=SPEC.keys * 2), "/state", 2, new=False, path="x")
    record = opened(RECORD, SPEC, "/state", 2, new=False, path="x")
    assert (record.location, record.spec, record.begun) == (RECORD.location, SPEC, RECORD.begun)


def test_what_may_change_is_taken_over() -> None:
    """The watermark's delay shapes no state: a restart may change it."""
    spec = replace(SPEC, delays_ms=(5_000,))
    record = OperatorRecord("/state", spec, (0, 1))
    slower = replace(spec, delays_ms=(60_000,))
    assert opened(record, slower, "/state", 2, new=False, path="p").spec == slower


def test_a_name_stays_inside_the_folder() -> None:
    assert record_name("../../offsets/0") == "headrace-operators/%2E.%2F..%2Foffsets%2F0.json"
