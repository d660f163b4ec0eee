"""Protects the layouts of an operator: which one a version has, and what a start makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.checkpoint.records import OperatorRecord, refuse_default_number
from headrace.errors import SettingError
from headrace.plan.partitions.layouts import (
    FIRST,
    Layout,
    Origin,
    first_layout,
    layout_at,
    origin_of,
    rescaled,
)
from headrace.testing.contracts.store_contract import folding

SPEC = replace(folding(None, "changes"), partitions=4)
TWICE = (Layout(FIRST, 4), Layout(21, 8, by_range=True))


def test_the_same_number_changes_nothing() -> None:
    assert rescaled(first_layout(4), 20, 4) == first_layout(4)
    assert origin_of(first_layout(4), 20) is None


def test_another_number_counts_from_the_next_version_on() -> None:
    assert rescaled(first_layout(4), 20, 8) == TWICE
    assert layout_at(TWICE, 20) == TWICE[0]
    assert layout_at(TWICE, 21) == TWICE[1]
    assert origin_of(TWICE, 20) == Origin(4)
    assert origin_of(TWICE, 21) is None


def test_a_change_that_never_committed_is_forgotten() -> None:
    assert rescaled(TWICE, 20, 4) == first_layout(4)
    assert rescaled(TWICE, 20, 3) == (TWICE[0], Layout(21, 3, by_range=True))
    assert rescaled(TWICE, 20, 8) == TWICE


def test_a_number_that_comes_back_is_a_layout_of_its_own() -> None:
    again = rescaled(TWICE, 30, 4)
    assert again == (*TWICE, Layout(31, 4, by_range=True))
    assert origin_of(again, 30) == Origin(8, by_range=True)


def test_without_a_version_any_number_is_the_first() -> None:
    assert rescaled(TWICE, None, 5) == first_layout(5)


def test_a_branch_begins_from_its_original() -> None:
    branch = (Layout(21, 4, by_range=True, parents="q/o/layouts/branch"),)
    assert layout_at(branch, 20) is None
    assert origin_of(branch, 20) == Origin(parents="q/o/layouts/branch")
    assert rescaled(branch, 20, 7) == (replace(branch[0], partitions=7),)
    assert rescaled(branch, 21, 4) == branch


def test_a_record_keeps_its_layouts() -> None:
    record = OperatorRecord("/state", replace(SPEC, partitions=8), (19, 20, 21), TWICE)
    assert OperatorRecord.of(record.body("/ck"), "/ck") == record
    plain = OperatorRecord("/state", SPEC, (0,))
    assert "layouts" not in plain.body("/ck"), "earlier releases read it"


def test_a_default_number_rescales_nothing() -> None:
    record = OperatorRecord("/state", SPEC, (0,))
    refuse_default_number(record, SPEC)
    with pytest.raises(SettingError, match="has 4 partitions, and the default on") as error:
        refuse_default_number(record, replace(SPEC, partitions=16))
    assert "spark.headrace.partitions=4" in error.value.hint
    refuse_default_number(replace(record, begun=()), replace(SPEC, partitions=16))
