"""Protects the sentence that names a query's bottleneck: each sign leads to its own verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.monitor.picture.bottleneck import Signs, bottleneck

EVEN = Signs(
    batch_ms=100,
    waited_ms={"read": 10, "apply": 10, "emit": 10, "log": 10, "wait": 10, "open": 10},
    operator="sessions",
    store="aur",
)


def with_most(phase: str, **more: object) -> Signs:
    return replace(EVEN, waited_ms={**EVEN.waited_ms, phase: 60}, batch_ms=150, **more)


@pytest.mark.parametrize(
    ("signs", "limit", "words"),
    [
        (Signs(), "start", "No batch"),
        (replace(EVEN, error="x"), "error", "failed"),
        (replace(EVEN, storage_waits_s={"s3://b": 12.4}), "storage", "s3://b for 12 s"),
        (replace(EVEN, recovering=(3, 8)), "recovery", "3 of 8"),
        (replace(EVEN, idle=0.8), "none", "80% of the time"),
        (EVEN, "spark", "40% of a batch"),
        (with_most("read"), "read", "sessions waits for its rows in 40%"),
        (with_most("apply"), "apply", "sessions (aur) takes 40%"),
        (with_most("apply", skew=3.5, fullest=7), "skew", "partition 7 gets 3.5 times"),
        (with_most("apply", state_to_memory=4.0), "memory", "4.0 times the memory"),
        (with_most("emit"), "emit", "Results of sessions"),
        (with_most("seal"), "commit", "hr.start"),
        (with_most("log", commit="async"), "commit", "local disk"),
        (with_most("wait"), "upload", "shared storage"),
        (with_most("open"), "open", "Reading state"),
    ],
)
def test_each_sign_has_its_verdict(signs: Signs, limit: str, words: str) -> None:
    verdict = bottleneck(signs)
    assert verdict.limit == limit
    assert words in str(verdict)
