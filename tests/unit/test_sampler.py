"""Protects the sampler: each batch once, its hidden part later, hosts that end, failed queries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from host_fakes import counting
from progress_rows import hidden, progress, summary

from headrace.coordinator.placing.machines import HostReport
from headrace.coordinator.progress import BatchProgress, total, with_hidden
from headrace.coordinator.requests import OperatorAccount
from headrace.monitor.history import HistoryWriter
from headrace.monitor.journal import Journal
from headrace.monitor.metrics.totals import Totals
from headrace.monitor.picture.picture import Picture
from headrace.monitor.picture.signs import finding, signs_of
from headrace.monitor.sampler import Ended, Running, Sampler
from headrace.testing.clock import ManualClock


class Coordinator:
    """One query with one operator."""

    def __init__(self) -> None:
        self.batches: dict[int, BatchProgress] = {}
        self.reports: dict[str, HostReport] = {}

    def hosts(self) -> dict[str, HostReport]:
        return self.reports

    def queries(self) -> list[str]:
        return ["q"]

    def operators(self, query: str) -> list[str]:
        return ["counts"]

    def account(self, query: str, operator: str, since: int) -> OperatorAccount:
        mine = [batch for number, batch in self.batches.items() if number >= since]
        return OperatorAccount("run", counting(), "/state", "file:/ck", mine)


class Spark:
    running: Running | None = Running("run", "payments")
    error = ""

    def active_queries(self) -> set[str]:
        return {"q"} if self.running else set()

    def describe(self, query: str, since: int) -> Running | None:
        return self.running

    def ended(self, query: str, since: int) -> Ended:
        return Ended(self.error)


class Bench:
    def __init__(self) -> None:
        self.coordinator, self.spark, self.journal = Coordinator(), Spark(), Journal()
        self.clock = ManualClock()
        self.written: list[dict[str, Any]] = []

        class Files:
            def restart(_, number: int, text: str) -> None:  # noqa: N805
                self.written += [json.loads(line) for line in text.splitlines()]

            def append(_, number: int, text: str, at_ms: int) -> None:  # noqa: N805
                self.written += [json.loads(line) for line in text.splitlines()]

        self.sampler = Sampler(
            self.coordinator,  # type: ignore[arg-type]
            self.spark,
            self.journal,
            lambda checkpoint: HistoryWriter(Files(), 1 << 20),
            self.clock,
        )

    def kinds(self) -> list[str]:
        return [record["kind"] for record in self.sampler.sample() if record["kind"] != "hosts"]

    def picture(self) -> Picture:
        picture = Picture()
        picture.take(self.journal.since(0)[1])
        return picture


def test_each_batch_is_recorded_once_and_again_when_its_hidden_part_is_known() -> None:
    bench = Bench()
    bench.coordinator.batches[0] = progress(0)
    assert bench.kinds() == ["query", "operator", "batch"]
    assert bench.kinds() == []
    bench.coordinator.batches[0] = total(0, [with_hidden(summary(n, 0), hidden(0)) for n in range(2)])
    bench.coordinator.batches[1] = progress(1)
    assert bench.kinds() == ["batch", "batch"]
    query = bench.picture().queries["q"]
    assert query.name == "payments"
    assert query.operators["counts"].batches[0].hidden_ms == 40.0
    totals = Totals()
    totals.take(bench.journal.since(0)[1])
    counted = totals.operators["q", "counts"]
    assert (counted.batches, counted.counts["rows_in"]) == (2, 600)
    assert abs(counted.hidden_s["upload"] - 0.033) < 1e-9, "the hidden part is added when it is known"
    assert [record["kind"] for record in bench.written].count("batch") == 3


def test_half_a_batch_is_not_recorded() -> None:
    bench = Bench()
    bench.coordinator.batches[0] = progress(0, partitions=1)
    assert bench.kinds() == ["query", "operator"]


def test_a_failed_query_leaves_its_error_and_hint() -> None:
    bench = Bench()
    bench.coordinator.batches[0] = progress(0)
    bench.kinds()
    bench.spark.running = None
    bench.spark.error = (
        "org.apache.spark.sql.streaming.StreamingQueryException: Job aborted\n"
        "headrace.errors.StateMissing: version 3 is gone\n  → restore it from a backup\n\n\tat org.apache"
    )
    assert bench.kinds() == ["event", "ended"]
    assert bench.kinds() == []
    picture = bench.picture()
    assert (picture.events[-1].message, picture.events[-1].hint) == (
        "version 3 is gone",
        "restore it from a backup",
    )
    assert picture.queries["q"].state == "failed"
    assert finding(picture, picture.queries["q"]).limit == "error"


def test_a_host_that_was_replaced_and_its_errors_are_events() -> None:
    bench = Bench()
    error = {"number": 1, "at_ms": 5, "where": "counts", "message": "broken", "hint": "mend it"}
    bench.coordinator.reports["a"] = HostReport(1, {}, {"errors": [error], "memory_limit_bytes": 100})
    assert bench.kinds() == ["event", "query", "operator"]
    bench.coordinator.reports["a"] = HostReport(2, {}, {"storage_waits_ms": {"s3://b": 1500.0}})
    assert bench.kinds() == ["event", "event"]
    bench.coordinator.reports = {}
    assert bench.kinds() == ["event", "event"]
    texts = [event.message for event in bench.picture().events]
    assert texts[0] == "broken"
    assert "(pid 2)" in texts[1]
    assert texts[2] == "storage does not answer: s3://b"
    assert {"sends no heartbeat" in text or "is back" in text for text in texts[3:]} == {True}


@pytest.mark.parametrize(
    ("pid", "message"),
    [
        (1, "the host sends heartbeats again (pid 1)"),
        (2, "the host ended (pid 1) and another took its place (pid 2)"),
    ],
)
def test_a_host_that_was_silent_for_a_while_is_named_as_itself_or_replaced(pid: int, message: str) -> None:
    bench = Bench()
    bench.coordinator.reports["a"] = HostReport(1, {}, {})
    bench.kinds()
    bench.coordinator.reports = {}
    assert [bench.kinds(), bench.kinds()] == [["event"], []], "silence is one event"
    bench.coordinator.reports["a"] = HostReport(pid, {}, {})
    assert [bench.kinds(), bench.kinds()] == [["event"], []]
    texts = [event.message for event in bench.picture().events]
    assert texts == ["the host sends no heartbeat (pid 1)", message]


def test_signs_name_the_fullest_partition_and_idle_time() -> None:
    bench = Bench()
    bench.coordinator.reports["a"] = HostReport(1, {}, {"memory_limit_bytes": 1 << 18})
    for number in range(4):
        bench.coordinator.batches[number] = progress(number)
        spark = {
            "timestamp": f"2026-01-01T00:00:{number:02d}.000Z",
            "batchId": number,
            "numInputRows": 300,
            "durationMs": {"triggerExecution": 50},
        }
        bench.spark.running = Running("run", "payments", (json.dumps(spark),))
        bench.kinds()
        bench.clock.advance_ms(1000)
    picture = bench.picture()
    signs = signs_of(picture, picture.queries["q"])
    assert (signs.fullest, round(signs.skew, 2)) == (1, 1.33)
    assert signs.idle > 0.9
    assert signs.state_to_memory == 2.0
