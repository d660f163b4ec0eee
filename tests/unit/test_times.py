"""Protects the times of the protocol: they satisfy every rule, and every rule can be broken."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from headrace.blob.patient import Patience
from headrace.checkpoint.steps import Limits
from headrace.plan.times import TIMES, Times, broken_rules

# For each rule, a change that breaks it and no other.
CHANGES: dict[str, dict[str, float]] = {
    "host_lost_s allows": {"host_lost_s": 7.9},
    "host_sign_s allows": {"host_sign_s": 3.9},
    "host_sign_s is no longer": {"host_sign_s": 8.1},
    "host_ping_s": {"host_ping_s": 7.9},
    "host_hung_s: a slow": {"host_watch_s": 11.0},
    "host_hung_s: a busy": {"host_hung_s": 18.0},
    "driver_gone_s allows": {"driver_gone_s": 3.9},
    "driver_silent_s is longer": {"driver_gone_s": 30.0, "gap_settle_s": 38.0},
    "driver_silent_s: the driver": {"driver_silent_s": 7.9},
    "driver_watch_s": {"driver_watch_s": 2.0},
    "host_start_s": {"host_leave_s": 120.0, "gap_settle_s": 124.0},
    "host_address_s": {"host_address_s": 123.9},
    "begin_answer_s": {"begin_answer_s": 134.0},
    "step_stalled_s": {"step_stalled_s": 65.0},
    "commit_watch_s": {"commit_watch_s": 9.1},
    "storage_patience_s outlasts two": {"storage_patience_s": 134.9},
    "storage_patience_s outlasts a stall": {"step_stalled_s": 300.0},
    "storage_report_s": {"storage_report_s": 5.0},
    "gap_settle_s": {"gap_settle_s": 11.9},
    "compactor_silent_s": {"compactor_beat_s": 3.1},
    "compactor_job_s": {"compactor_job_s": 300.0},
    "lease_s": {"lease_renew_s": 2.7},
    "run_fresh_s": {"run_fresh_s": 4.0},
    "gap_look_s": {"gap_look_s": 3.1},
    "lookup_answer_s": {"lookup_answer_s": 293.0},
}


def test_the_times_satisfy_every_rule() -> None:
    assert broken_rules(TIMES) == []


@pytest.mark.parametrize("rule", CHANGES)
def test_a_rule_that_is_broken_is_named(rule: str) -> None:
    broken = broken_rules(replace(TIMES, **CHANGES[rule]))
    assert [each.startswith(rule) for each in broken] == [True]


def test_every_rule_has_a_change_that_breaks_it() -> None:
    nothing_fits = Times(**{field.name: float("nan") for field in fields(Times)})
    rules = broken_rules(nothing_fits)
    assert [sum(each.startswith(rule) for rule in CHANGES) for each in rules] == [1] * len(CHANGES)


def test_the_policies_of_storage_and_commits_take_their_times_from_there() -> None:
    assert Patience().limit_ms == TIMES.storage_patience_s * 1000
    assert Limits().stalled_ms == TIMES.step_stalled_s * 1000
