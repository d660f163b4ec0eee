"""Protects the coordinator's answers: partitions, owners, fencing, records before begins, progress."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from host_fakes import counting

from headrace.coordinator.claims import StageClaims
from headrace.coordinator.core import Coordinator, HeardHost
from headrace.coordinator.operators import BeginRequest, TrackedOperator, state_location
from headrace.coordinator.placement import LOST_S, owner_of
from headrace.coordinator.progress import total
from headrace.errors import Fenced, HeadraceError, QueryError
from headrace.host.contract import Hidden, Summary
from headrace.spark.checkpoint_files import LocalFiles
from headrace.spark.driver import is_local, runs


class Files:
    root = "file:/ck"

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.writes = 0

    def read(self, name: str) -> str | None:
        return self.texts.get(name)

    def write(self, name: str, text: str) -> None:
        self.writes += 1
        self.texts[name] = text


class View:
    """A Spark application with one query."""

    def __init__(self) -> None:
        self.run: str | None = "run"
        self.files = Files()
        self.asked = 0
        self.fresh = False

    def active_run(self, query: str) -> str | None:
        return self.run

    def active_queries(self) -> set[str]:
        return {"q"} if self.run else set()

    def checkpoint_files(self, query: str) -> Files:
        return self.files

    def started_fresh(self, query: str) -> bool:
        return self.fresh

    def seen_ms(self, query: str, batch: int, nodes: list[str]) -> list[int | None]:
        self.asked += 1
        return [batch * 1000 for _ in nodes]

    def alive(self) -> bool:
        return True


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def view() -> View:
    return View()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def coordinator(view: View, clock: Clock) -> Coordinator:
    return Coordinator(view, clock)


BEGIN = BeginRequest(
    query="q",
    run="run",
    uid="u",
    batch=0,
    stage=1,
    task=0,
    attempt=0,
    partition=0,
    machine="a",
    spec=counting(),
    location=None,
    new=False,
)


def summary(partition: int, batch: int = 0, **more: Any) -> Summary:
    zeros = dict.fromkeys(Summary.__dataclass_fields__, 0)
    return Summary(**{**zeros, "partition": partition, "version": batch, "watermark_ms": None, **more})


def commit(
    coordinator: Coordinator, batch: int, *partitions: int, operator: str = "counts", run: str = "run"
) -> None:
    for partition in partitions:
        said = {"query": "q", "run": run, "operator": operator, "batch": batch}
        coordinator.act("committed", {**said, "summary": summary(partition, batch).__dict__})


def test_batches_follow_each_other(coordinator: Coordinator, view: View) -> None:
    answer = coordinator.begin(BEGIN)
    assert answer["base"] is None
    assert answer["location"] == "/ck/headrace-state"
    assert answer["partitions"] == [{"partition": 0, "machine": "a", "address": None}]
    coordinator.begin(replace(BEGIN, partition=1, task=1, attempt=1))
    assert view.files.writes == 1, "once per operator and batch"
    commit(coordinator, 0, 0, 1)
    assert coordinator.begin(replace(BEGIN, batch=3, stage=2, attempt=2))["base"] == 0
    assert '"begun": [\n  0,\n  3\n ]' in view.files.texts["headrace-operators/counts.json"]


def test_the_newest_attempt_at_the_base_is_told(coordinator: Coordinator, view: View) -> None:
    for attempt in (1, 7, 4):
        assert coordinator.begin(replace(BEGIN, attempt=attempt))["base_attempts"] == [None]
    commit(coordinator, 0, 0, 1)
    assert coordinator.begin(replace(BEGIN, batch=1, attempt=9))["base_attempts"] == [7]
    commit(coordinator, 1, 0, 1)
    view.run = "again"
    begun = coordinator.begin(replace(BEGIN, run="again", batch=2))
    assert begun["base_attempts"] == [None], "another run began it"


def test_the_record_is_written_before_anyone_is_answered(coordinator: Coordinator, view: View) -> None:
    entered, release = threading.Event(), threading.Event()
    answers: list[int] = []

    def slow(name: str, text: str) -> None:
        entered.set()
        release.wait(10)

    view.files.write = slow  # type: ignore[method-assign]

    def begin(task: int) -> None:
        coordinator.begin(replace(BEGIN, task=task, attempt=task, partition=task))
        answers.append(task)

    threads = [threading.Thread(target=begin, args=(task,)) for task in (0, 1)]
    for thread in threads:
        thread.start()
    assert entered.wait(10)
    assert not answers
    release.set()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [0, 1]


def test_a_replay_after_a_restart_has_the_same_base(view: View, clock: Clock) -> None:
    first = Coordinator(view, clock)
    for batch in (0, 1):
        first.begin(replace(BEGIN, batch=batch, stage=batch))
        commit(first, batch, 0, 1)
    view.run = "again"
    second = Coordinator(view, clock)
    assert second.begin(replace(BEGIN, run="again", batch=1))["base"] == 0
    assert view.files.writes == 2, "the record already says so"


def test_zombies_are_fenced(coordinator: Coordinator, view: View) -> None:
    coordinator.begin(replace(BEGIN, batch=0))
    commit(coordinator, 0, 0, 1)
    coordinator.begin(replace(BEGIN, batch=1, stage=2))
    with pytest.raises(Fenced, match="batch 0"):
        coordinator.begin(replace(BEGIN, batch=0, attempt=9))
    view.run = "next"
    with pytest.raises(Fenced, match="over"):
        coordinator.begin(replace(BEGIN, run="older", batch=1))
    coordinator.begin(replace(BEGIN, run="next", batch=1, stage=3))
    with pytest.raises(Fenced, match="run run"):
        coordinator.begin(replace(BEGIN, run="run", batch=1, attempt=10))


def test_two_operators_of_one_name(coordinator: Coordinator) -> None:
    coordinator.begin(BEGIN)
    with pytest.raises(QueryError, match="named counts"):
        coordinator.begin(replace(BEGIN, uid="other", task=1, attempt=1, partition=1))


def test_half_a_batch_is_noticed(coordinator: Coordinator) -> None:
    coordinator.begin(BEGIN)
    commit(coordinator, 0, 0)
    with pytest.raises(QueryError, match="evaluated 1 of 2 partitions"):
        coordinator.begin(replace(BEGIN, batch=1, stage=2))


def test_a_late_first_batch_of_a_fresh_query_is_not_loss(coordinator: Coordinator, view: View) -> None:
    view.fresh = True
    assert coordinator.begin(replace(BEGIN, batch=3))["base"] is None


def test_event_times_are_asked_once(coordinator: Coordinator, view: View) -> None:
    ask = replace(BEGIN, nodes=["n"])
    assert coordinator.begin(ask)["seen_ms"] == [0]
    assert coordinator.begin(replace(ask, partition=1, task=1, attempt=1))["seen_ms"] == [0]
    assert view.asked == 1
    commit(coordinator, 0, 0, 1)
    assert coordinator.begin(replace(ask, batch=1, stage=2, attempt=2))["seen_ms"] == [1000]
    assert view.asked == 2
    with pytest.raises(Fenced):
        coordinator.begin(replace(ask, attempt=3))
    with pytest.raises(HeadraceError, match="no such action"):
        coordinator.act("exec", {})


def test_a_task_of_an_earlier_run_changes_nothing(coordinator: Coordinator, view: View) -> None:
    """It would fix the batch's event times before Spark has seen them all, and pass for progress."""
    coordinator.begin(BEGIN)
    view.run = "next"
    coordinator.begin(replace(BEGIN, run="next", stage=2, attempt=1))
    with pytest.raises(Fenced, match="run run"):
        coordinator.begin(replace(BEGIN, nodes=["n"], attempt=2))
    assert view.asked == 0
    with pytest.raises(Fenced, match="run run"):
        commit(coordinator, 0, 0)
    assert coordinator.progress("q", "counts") == []
    commit(coordinator, 0, 0, run="next")
    assert [batch.partitions for batch in coordinator.progress("q", "counts")] == [1]


def test_what_a_commit_did_behind_the_next_batch_is_told_with_that_one(view: View) -> None:
    tracked = TrackedOperator(view)
    tracked._run = "run"
    tracked.committed("run", 0, summary(0, commit="async", log_ms=1.0, hidden=None))
    assert tracked.progress()[0].hidden_ms == 0
    tracked.committed("run", 1, summary(0, 1, commit="async", hidden=Hidden(0, 2.0, 3.0, 4.0)))
    first, second = tracked.progress()
    assert (first.seal_ms, first.upload_ms, first.publish_ms, first.hidden_ms) == (2.0, 3.0, 4.0, 9.0)
    assert (first.log_ms, second.hidden_ms) == (1.0, 0)


def heard(coordinator: Coordinator, machine: str) -> dict[str, Any]:
    return coordinator.heartbeat(machine, HeardHost(1, {"tcp": f"grpc+tcp://{machine}:1"}, {}))


def test_a_partition_stays_where_it_is(coordinator: Coordinator, clock: Clock) -> None:
    coordinator.begin(BEGIN)
    heard(coordinator, "a")
    commit(coordinator, 0, 0, 1)
    clock.now_s += 5
    heard(coordinator, "a")
    answer = coordinator.begin(replace(BEGIN, batch=1, stage=2, machine="b"))
    assert answer["partitions"] == [{"partition": 0, "machine": "a", "address": "grpc+tcp://a:1"}]
    clock.now_s += LOST_S + 1
    answer = coordinator.begin(replace(BEGIN, batch=1, stage=2, machine="b", attempt=1))
    assert answer["partitions"] == [{"partition": 0, "machine": "b", "address": None}]
    assert set(coordinator.hosts()) == set()


def test_an_unreachable_owner_is_replaced(coordinator: Coordinator) -> None:
    coordinator._now_s = __import__("time").monotonic
    coordinator.begin(BEGIN)
    heard(coordinator, "a")
    answer = coordinator.begin(replace(BEGIN, machine="b", attempt=1, avoid="a"))
    assert answer["partitions"] == [{"partition": 0, "machine": "b", "address": None}]


def test_ending_is_told(coordinator: Coordinator) -> None:
    assert heard(coordinator, "a") == {"ending": False, "ended": []}
    assert [host.pid for host in coordinator.end()] == [1]
    assert heard(coordinator, "a") == {"ending": True, "ended": []}


def test_a_host_is_told_which_of_the_queries_in_its_memory_have_ended(
    coordinator: Coordinator, view: View
) -> None:
    held = [
        {"query": "q", "store": "rmw"},
        {"query": "old", "store": "aar"},
        {"query": "gone", "store": None},
    ]
    host = HeardHost(1, {}, {"partitions": held})
    assert coordinator.heartbeat("a", host)["ended"] == ["old"]
    view.run = None
    assert coordinator.heartbeat("a", host)["ended"] == ["old", "q"]
    coordinator.end()
    assert coordinator.heartbeat("a", host)["ended"] == [], "Spark is not asked any more"


def test_owner_of() -> None:
    assert owner_of(None, "a", {}, 0) == "a"
    assert owner_of("b", "a", {"b": 0.0}, LOST_S) == "b"
    assert owner_of("b", "a", {"b": 0.0}, LOST_S + 0.1) == "a"
    assert owner_of("b", "a", {}, 0) == "a"


def test_claims_give_the_rest_to_the_last() -> None:
    claims = StageClaims(4)
    assert claims.arrive(10, 1, None) == []
    assert claims.arrive(11, 2, 3) == [3]
    assert claims.arrive(12, 3, None) == []
    assert claims.arrive(13, 4, 1) == [1, 0, 2]
    assert claims.arrive(13, 5, 1) == [1, 0, 2], "a second attempt gets the same answer"
    assert claims.arrive(10, 6, None) == []
    with pytest.raises(QueryError, match="used twice"):
        claims.arrive(14, 7, None)


def test_claims_of_a_coalesced_task() -> None:
    claims = StageClaims(3)
    assert [claims.arrive(0, 1, partition) for partition in (0, None, 2)] == [[0], [], [2, 1]]
    assert [claims.arrive(0, 2, partition) for partition in (0, None, 2)] == [[0], [], [2, 1]]


def test_claims_find_an_operator_used_twice() -> None:
    claims = StageClaims(3)
    claims.arrive(0, 1, 1)
    with pytest.raises(QueryError, match="used twice"):
        claims.arrive(5, 2, 1)


def test_totals() -> None:
    parts = [summary(0, rows_in=3, keys=2, seal_ms=4.0, watermark_ms=7), summary(1, rows_in=4, seal_ms=9.0)]
    sums = total(5, [summary(0, rows_in=99), *parts])
    assert (sums.batch, sums.partitions, sums.rows_in, sums.keys, sums.seal_ms) == (5, 2, 7, 2, 9.0)
    assert sums.watermark_ms == 7


@pytest.mark.parametrize(
    ("configured", "root", "expected"),
    [
        (None, "file:/ck", "/ck/headrace-state"),
        (None, "file:///ck", "/ck/headrace-state"),
        ("/s", "hdfs://x/ck", "/s"),
    ],
)
def test_where_state_lies(configured: str | None, root: str, expected: str) -> None:
    assert state_location(configured, root) == expected


def test_no_default_location_off_the_file_system() -> None:
    with pytest.raises(QueryError, match="hdfs://x/ck"):
        state_location(None, "hdfs://x/ck")


def context(*, jsc: Any, exit_code: int | None = None) -> Any:
    return SimpleNamespace(_jsc=jsc, _gateway=SimpleNamespace(proc=SimpleNamespace(poll=lambda: exit_code)))


def java(stopped: bool) -> Any:
    return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped))


def test_an_application_ends_in_many_ways() -> None:
    assert runs(context(jsc=java(False)))
    assert not runs(context(jsc=java(True))), "stopped by somebody else"
    assert not runs(context(jsc=None)), "stopped from Python"
    assert not runs(context(jsc=java(False), exit_code=-9)), "the JVM was killed"
    assert not runs(context(jsc=SimpleNamespace())), "the JVM does not answer"


def test_local_masters() -> None:
    assert [is_local(m) for m in ("local", "local[2]", "local[*]")] == [True] * 3
    assert [is_local(m) for m in ("local-cluster[2,1,1024]", "spark://h:7077", "yarn")] == [False] * 3


def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    files = LocalFiles(f"file:{tmp_path}")
    assert files.read("f/x.json") is None
    files.write("f/x.json", "1")
    files.write("f/x.json", "2")
    assert files.read("f/x.json") == "2"
    assert [path.name for path in (tmp_path / "f").iterdir()] == ["x.json"]
