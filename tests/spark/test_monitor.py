"""Protects what a real query shows: metrics for a real client library, history, the page, a killed host."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from streaming_case import Case

import headrace as hr
from headrace.monitor.history import FOLDER
from headrace.monitor.metrics.prometheus import COUNTERS, GAUGES
from headrace.pages.state import ROWS_SHOWN, browse
from headrace.spark.build.recipe import session_options
from headrace.testing.browser.chromium import Browser, chromium

EVENTS = [("ann", 1, 2.0), ("bob", 1, 3.0), ("ann", 2, 4.0)]


@pytest.fixture
def measured(case: Case, spark: SparkSession) -> Case:
    """A query of two batches, with metrics."""
    spark.conf.set("spark.headrace.metrics.port", "0")
    try:
        case.feed(*EVENTS)
        case.feed(*EVENTS)
        case.run(case.totals())
    finally:
        spark.conf.unset("spark.headrace.metrics.port")
    return case


def test_metrics_are_those_of_the_batches(measured: Case, spark: SparkSession) -> None:
    monitor = measured.coordinator.monitor(session_options(spark))
    monitor.sample()
    with urlopen(f"http://127.0.0.1:{monitor.metrics_port}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = {
        sample.name: sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("operator", "totals") == "totals"
    }
    run = hr.progress(str(measured.checkpoint))["totals"]
    assert samples["headrace_operator_input_rows_total"] >= 6, "operators of other tests may share the name"
    assert [batch.rows_in for batch in run] == [3, 3]
    documented = Path(__file__).parents[2].joinpath("docs/metrics.md").read_text()
    for family in families:
        assert f"`{family.name}" in documented, family.name
    assert {f"headrace_operator_{name}" for name, _ in COUNTERS.values()} <= {f.name for f in families}
    assert len(GAUGES) <= len(families)


def test_history_stays_with_the_checkpoint(measured: Case) -> None:
    run = hr.progress(str(measured.checkpoint))
    frame = run.toPandas()
    assert frame["batch"].tolist() == [0, 1]
    assert (frame["ended"] >= frame["started"]).all()
    last = run["totals"][-1]
    assert {span.phase for span in last.spans} <= {
        "open",
        "read",
        "apply",
        "emit",
        "seal",
        "publish",
        "wait",
    }
    assert sum(part.keys for part in last.parts) == last.keys == 2
    assert list((measured.checkpoint / FOLDER).glob("*.jsonl"))


def test_state_is_found_by_key(measured: Case) -> None:
    html = browse(f"file:{measured.checkpoint}", "totals", "ann", ROWS_SHOWN)
    assert "ann" in html
    assert "12.0" in html, "ann's sum over both batches"
    assert "bob" not in html
    assert "1 rows shown, 1 looked at" in html, "a key is looked up"
    assert "2 rows shown, 2 looked at" in browse(str(measured.checkpoint), "totals", "", ROWS_SHOWN)
    assert "bob" in browse(str(measured.checkpoint), "totals", "bo", ROWS_SHOWN), "a part of a key"
    assert "none of 2 rows" in browse(str(measured.checkpoint), "totals", "12.0", 5), "a value is no key"
    assert "missing" in browse(str(measured.checkpoint), "missing", "", 5), "the error names it"


def test_a_history_of_zero_bytes_is_none(case: Case, spark: SparkSession) -> None:
    spark.conf.set("spark.headrace.history", "0")
    try:
        case.feed(*EVENTS)
        case.run(case.totals())
        case.coordinator.flush_history()
    finally:
        spark.conf.unset("spark.headrace.history")
    assert not (case.checkpoint / FOLDER).exists()


@pytest.mark.skipif(chromium() is None, reason="chromium is not installed on this machine")
def test_the_page_shows_a_killed_host_and_its_successor(measured: Case, spark: SparkSession) -> None:
    view = hr.view(spark)
    try:
        with Browser() as browser:
            monitor = measured.coordinator.monitor(session_options(spark))
            query = [one for one in monitor.journal.since(0)[1] if one["kind"] == "query"][-1]["query"]
            browser.open(f"{view.url}?query={query}")
            browser.until_text("totals")
            host = next(iter(measured.coordinator.hosts().values()))
            os.kill(host.pid, signal.SIGKILL)
            measured.feed(*EVENTS)
            measured.run(measured.totals())
            assert f"(pid {host.pid})" in browser.until_text("another took its place")
            assert browser.hosts == {"127.0.0.1"}
            assert browser.errors == []
    finally:
        view.stop()
