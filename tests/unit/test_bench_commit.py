"""Protects what `bench commit` is measured on, and what it makes of its measurements."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from headrace.bench.commit.input import KINDS, Load, write
from headrace.bench.commit.pace_report import ENDS, Arrival, Paced
from headrace.bench.commit.pace_report import ratios_of as pace_ratios
from headrace.bench.commit.report import OF_LATENCY, Outcome, growth, ratios_of, report
from headrace.bench.commit.run import far_storage
from headrace.bench.commit.throttled import arrivals_of
from headrace.host.process.main import open_by_name
from headrace.spark.task import task
from headrace.testing.simulation.model import SPEC


def outcome(*took_ms: float, critical: float = 0.0) -> Outcome:
    return Outcome(tuple(range(len(took_ms))), 1000, took_ms, (critical,) * len(took_ms))


def steady(took_ms: float, critical: float = 0.0, batches: int = 100) -> Outcome:
    return outcome(*[took_ms] * batches, critical=critical)


def test_every_ratio_is_above_one_where_asynchronous_commits_are_ahead() -> None:
    slow, fast = steady(500.0, critical=80.0), steady(100.0, critical=4.0)
    ratios = ratios_of(
        ["lr4"],
        {
            ("small", "sync", "lr4"): slow,
            ("small", "async", "lr4"): fast,
            ("large", "async", "lr4"): fast,
            ("large", "upload", "lr4"): slow,
            ("large", "spark", "lr4"): slow,
            ("large", "floor", "lr4"): steady(50.0),
        },
    )
    assert ratios["floor_throughput_vs_spark.lr4"] == pytest.approx(10.0)
    assert ratios["critical_path_sync_over_async.lr4"] == pytest.approx(20.0)
    assert ratios["critical_path_upload_over_async.lr4"] == pytest.approx(20.0)
    for other in ("spark", "upload"):
        assert ratios[f"p99_vs_{other}.lr4"] == pytest.approx(5.0)
        assert ratios[f"throughput_vs_{other}.lr4"] == pytest.approx(5.0)


def test_few_batches_have_no_99th_percentile() -> None:
    slow, fast = steady(500.0, batches=99), steady(100.0, batches=99)
    measured = {("large", "async", "lr4"): fast, ("large", "spark", "lr4"): slow}
    assert {name.partition(".")[0] for name in ratios_of(["lr4"], measured)} == {"throughput_vs_spark"}


def test_a_short_run_prints_no_ratio_of_speeds() -> None:
    fast, slow = steady(10.0, critical=4.0, batches=3), steady(50.0, critical=80.0, batches=3)
    measured = {
        ("small", "sync", "lr4"): slow,
        ("small", "async", "lr4"): fast,
        ("large", "async", "lr4"): fast,
        ("large", "spark", "lr4"): slow,
    }
    quiet = Console(quiet=True)
    line = json.loads(report(["lr4"], ["async", "spark"], measured, [], 1 << 20, quiet, is_short=True))
    assert {name.partition(".")[0] for name in line["ratios"]} == {OF_LATENCY}
    assert line["p99_ms"] == {}


def paced(*took_ms: float, records: int = 4_500, growth: float = 1.0) -> Paced:
    sizes = [records] * (len(took_ms) - ENDS) + [round(records * growth)] * ENDS
    return Paced([Arrival(size, ms) for size, ms in zip(sizes, took_ms, strict=True)])


def test_a_throttled_run_has_its_distribution_and_its_growth() -> None:
    run = paced(*map(float, range(1, 101)), growth=1.5)
    assert run.p99_ms == pytest.approx(99.01)
    assert run.distribution_ms["50"] == pytest.approx(50.5)
    assert run.size_growth == 1.5
    assert run.kb_per_s == pytest.approx((90 * 4_500 + 10 * 6_750) * 65 / 5_050)


def test_throttled_sides_are_compared_from_a_hundred_batches_on() -> None:
    ours, other = paced(*[100.0] * 100), paced(*[300.0] * 100)
    assert pace_ratios({(1_500, "async", "lr4"): ours, (1_500, "spark", "lr4"): other}) == {
        "p99_vs_spark.lr4.1500": 3.0,
        "mean_vs_spark.lr4.1500": 3.0,
    }
    short = paced(*[300.0] * 99)
    assert pace_ratios({(1_500, "async", "lr4"): ours, (1_500, "spark", "lr4"): short}) == {}
    assert short.p99_ms is None


def test_a_batch_without_records_does_not_count() -> None:
    def batch(number: int, start: str | None, end: str) -> Any:
        source = SimpleNamespace(startOffset=start, endOffset=end)
        return SimpleNamespace(batchId=number, sources=[source], durationMs={"triggerExecution": 70})

    progress = [
        batch(0, "null", '{"records": 90}'),
        batch(1, '{"records": 90}', '{"records": 90}'),
        batch(2, '{"records": 90}', '{"records": 150}'),
    ]
    assert arrivals_of(progress) == {0: Arrival(90, 70.0), 2: Arrival(60, 70.0)}


def test_the_plain_name_is_the_worst_query() -> None:
    outcomes = {
        ("large", side, name): steady(ms)
        for side, name, ms in (
            ("async", "lr4", 10.0),
            ("spark", "lr4", 70.0),
            ("async", "cm1", 10.0),
            ("spark", "cm1", 30.0),
        )
    }
    ratios = ratios_of(["lr4", "cm1", "cm2"], outcomes)
    assert ratios["p99_vs_spark"] == ratios["p99_vs_spark.cm1"] == pytest.approx(3.0)
    assert "p99_vs_spark.cm2" not in ratios
    assert "p99_vs_upload" not in ratios


def test_hosts_are_told_that_storage_is_far(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans: list[task.TaskPlan] = []
    monkeypatch.setattr(task, "task_of", plans.append)
    plan = task.TaskPlan(SPEC, "uid", "", "", "", "", 1 << 20, 3)
    with far_storage(40):
        task.task_of(plan)
    task.task_of(plan)
    assert plans[1] == plan
    assert plans[0].service.endswith("?latency_ms=40")
    open_by_name(plans[0].service)(1 << 20, tmp_path).close()


def test_growth_compares_the_ends_of_a_long_run() -> None:
    assert growth(outcome(*[100.0] * 10, *[500.0] * 70, *[120.0] * 10)) == pytest.approx(1.2)


def test_runs_of_the_same_are_taken_together() -> None:
    both = outcome(10.0, 20.0, critical=1.0).then(outcome(90.0, critical=3.0))
    assert both.took_ms == (10.0, 20.0, 90.0)
    assert both.critical_ms == (1.0, 1.0, 3.0)
    assert both.rows_per_s == pytest.approx(2000 / 0.12)


def test_files_are_in_the_order_of_their_batches(tmp_path: Path) -> None:
    kind, load = KINDS["lr4"], Load(3, 90, 0)
    write(load, kind, tmp_path)
    write(load, kind, tmp_path)
    files = sorted(load.folder(tmp_path, kind).iterdir())
    assert len(files) == 6
    assert sum(pq.read_metadata(path).num_rows for path in files) == 270
    stamps = [path.stat().st_mtime for path in files]
    assert stamps == sorted(stamps)
