"""Protects the coordinator's answers: partitions, owners, fencing, records before begins, progress."""

from __future__ import annotations

import threading
from dataclasses import asdict, replace
from typing import Any

import pytest
from coordinator_fakes import BEGIN, DELAYED, DIRECT, View, commit, summary

from headrace.checkpoint.beside.record_log import stored_record
from headrace.coordinator.core import Coordinator
from headrace.coordinator.operators import TrackedOperator
from headrace.coordinator.placing.machines import HostReport
from headrace.errors import Fenced, HeadraceError, QueryError
from headrace.plan.frontier import TimeInputs
from headrace.plan.times import TIMES
from headrace.testing import ManualClock
from headrace.wire.contract import Hidden


@pytest.fixture
def view() -> View:
    return View()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100_000)


@pytest.fixture
def coordinator(view: View, clock: ManualClock) -> Coordinator:
    return Coordinator(view, clock)


def test_batches_follow_each_other(coordinator: Coordinator, view: View) -> None:
    answer = coordinator.begin(BEGIN)
    assert answer["base"] is None
    assert answer["location"] == "/ck/headrace-state"
    assert answer["partitions"] == [{"partition": 0, "machine": "a", "address": None, "door": None}]
    coordinator.begin(replace(BEGIN, partition=1, task=1, attempt=1))
    assert len(view.files.list("headrace-operators/counts.log")) == 1, "once per operator and batch"
    commit(coordinator, 0, 0, 1)
    assert coordinator.begin(replace(BEGIN, batch=3, stage=2, attempt=2))["base"] == 0
    record = stored_record(view.files, "counts")
    assert record is not None
    assert record.begun == (0, 3)


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

    def slow(name: str, text: str) -> bool:
        entered.set()
        return release.wait(10)

    view.files.put = slow  # type: ignore[method-assign]

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


def test_a_replay_after_a_restart_has_the_same_base(view: View, clock: ManualClock) -> None:
    first = Coordinator(view, clock)
    for batch in (0, 1):
        first.begin(replace(BEGIN, batch=batch, stage=batch))
        commit(first, batch, 0, 1)
    view.run = "again"
    second = Coordinator(view, clock)
    assert second.begin(replace(BEGIN, run="again", batch=1))["base"] == 0
    record = stored_record(view.files, "counts")
    assert record is not None
    assert record.begun == (0, 1)


def test_an_earlier_run_cannot_begin_a_batch_beside_a_later_one(view: View, clock: ManualClock) -> None:
    """Two drivers, each with a coordinator and a Spark of its own, on one checkpoint."""
    earlier, later = Coordinator(view, clock), Coordinator(view, clock)
    earlier.begin(BEGIN)
    commit(earlier, 0, 0, 1)
    view.run = "again"
    later.begin(replace(BEGIN, run="again"))
    view.run = "run"
    with pytest.raises(Fenced, match=r"another start of the query has written .*/counts.log/00000002"):
        earlier.begin(replace(BEGIN, batch=1))


def test_a_start_whose_first_batch_another_start_has_committed_takes_nothing(
    view: View, clock: ManualClock
) -> None:
    """It read Spark's commit log before the other start committed the batch."""
    first, late = Coordinator(view, clock), Coordinator(view, clock)
    first.begin(BEGIN)
    commit(first, 0, 0, 1)
    view.files.write("commits/0", "v1")
    before = dict(view.files.texts)
    view.run = "late"
    with pytest.raises(Fenced, match="batch 0 is committed already: another start"):
        late.begin(replace(BEGIN, run="late"))
    assert view.files.texts == before, "neither the record nor the lease is its own"
    late.begin(replace(BEGIN, run="late", batch=1))


def test_progress_has_the_time_of_the_record(view: View, clock: ManualClock) -> None:
    put = view.files.put

    def slow(name: str, text: str) -> bool:
        clock.advance_ms(250)
        return put(name, text)

    view.files.put = slow  # type: ignore[method-assign]
    coordinator = Coordinator(view, clock)
    coordinator.begin(BEGIN)
    coordinator.begin(replace(BEGIN, partition=1, task=1, attempt=1))
    commit(coordinator, 0, 0, 1)
    assert [batch.begin_ms for batch in coordinator.progress("q", "counts")] == [250]


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


def test_a_batch_that_was_left_unread_stops_the_next(coordinator: Coordinator, view: View) -> None:
    coordinator.begin(BEGIN)
    commit(coordinator, 0, 0, 1)
    view.planned = {1: {"counts"}}
    with pytest.raises(QueryError, match="batch 1 was left unread") as refused:
        coordinator.begin(replace(BEGIN, batch=2, stage=2))
    assert "foreachBatch" in refused.value.hint


def test_an_operator_beside_it_stops_the_query_too(coordinator: Coordinator, view: View) -> None:
    """In the batch after, Spark may have nothing for the operator that lost its rows."""
    coordinator.begin(BEGIN)
    commit(coordinator, 0, 0, 1)
    view.planned, view.fresh = {1: {"counts"}}, True
    with pytest.raises(QueryError, match="counts"):
        coordinator.begin(replace(BEGIN, spec=replace(BEGIN.spec, name="other"), batch=2, stage=2))


def test_a_batch_without_the_operator_in_its_plan_is_not_unread(
    coordinator: Coordinator, view: View
) -> None:
    coordinator.begin(BEGIN)
    commit(coordinator, 0, 0, 1)
    view.planned = {1: {"beside"}}
    coordinator.begin(replace(BEGIN, spec=replace(BEGIN.spec, name="beside"), batch=1, stage=2, new=True))
    assert coordinator.begin(replace(BEGIN, batch=2, stage=3))["base"] == 0


def test_a_batch_that_an_earlier_run_left_unread_stops_the_next_run(
    coordinator: Coordinator, view: View
) -> None:
    coordinator.begin(BEGIN)
    commit(coordinator, 0, 0, 1)
    view.run, view.planned = "next", {1: {"counts"}}
    again = replace(BEGIN, run="next", batch=3, stage=2)
    view.planned = {1: {"counts"}}
    with pytest.raises(QueryError, match="batch 1 was left unread"):
        coordinator.begin(again)
    assert coordinator.begin(replace(again, new=True))["base"] == 0, "the user knows better"


def test_a_late_first_batch_of_a_fresh_query_is_not_loss(coordinator: Coordinator, view: View) -> None:
    view.fresh = True
    assert coordinator.begin(replace(BEGIN, batch=3))["base"] is None


def test_event_times_are_asked_once(coordinator: Coordinator, view: View) -> None:
    ask = replace(BEGIN, spec=DELAYED, times=DIRECT)
    assert coordinator.begin(ask)["seen_ms"] == [0]
    assert coordinator.begin(replace(ask, partition=1, task=1, attempt=1))["seen_ms"] == [0]
    assert view.reads == 1
    commit(coordinator, 0, 0, 1)
    assert coordinator.begin(replace(ask, batch=1, stage=2, attempt=2))["seen_ms"] == [1000]
    assert view.reads == 2
    with pytest.raises(Fenced):
        coordinator.begin(replace(ask, attempt=3))
    with pytest.raises(HeadraceError, match="no such action"):
        coordinator.act("exec", {})


def test_a_chained_operator_stays_behind_the_one_below_it(coordinator: Coordinator, view: View) -> None:
    """Whatever other branches of the query have seen; until the one below has reported, nothing moves."""
    behind = TimeInputs(("n",), through=("n",), upstream=(("below", 5),))
    view.fresh = True
    ask = replace(BEGIN, spec=DELAYED, uid="top", times=behind)
    assert coordinator.begin(ask)["seen_ms"] == [None]
    below = replace(BEGIN, spec=replace(DELAYED, name="below"), times=DIRECT, batch=1, stage=2)
    coordinator.begin(below)
    for partition, at_ms in ((0, 300), (1, 300)):
        report = asdict(summary(partition, 1, watermark_ms=at_ms))
        request = {"query": "q", "run": "run", "operator": "below", "batch": 1, "summary": report}
        coordinator.act("committed", request)
    commit(coordinator, 0, 0, 1)
    assert coordinator.begin(replace(ask, batch=1, stage=3))["seen_ms"] == [300 - 5 + 10]
    assert coordinator.begin(replace(ask, batch=1, stage=3, task=1, partition=1))["seen_ms"] == [305]


def planned(name: str, times: TimeInputs, batch: int = 0) -> dict[str, Any]:
    spec = replace(DELAYED, name=name).to_json()
    shared = {"location": None, "new": False, "retain": 2, "commit": "sync"}
    operator = {"spec": spec, "times": asdict(times), **shared}
    place = {"query": "q", "run": "run", "uid": name, "batch": batch, "node": 0, "stateful": True}
    return {**place, "operator": operator}


def test_a_chained_operator_in_the_jvm_stays_behind_the_one_below_it(
    coordinator: Coordinator, view: View
) -> None:
    """The JVM knows the watermarks of its operators below; a second question has more of them."""
    both = TimeInputs(("n", "m"), direct=("n", "m"), through=("n",), upstream=(("below", 5), ("python", 0)))
    view.fresh = True
    spec = replace(DELAYED, delays_ms=(10, 20))
    request = planned("top", both)
    coordinator.act("plan", {**request, "operator": {**request["operator"], "spec": spec.to_json()}})
    header = {"query": "q", "run": "run", "operator": spec.name, "batch": 0}

    def seen(direct: list[int | None], below: int | None) -> list[int | None]:
        request = {**header, "direct_ms": direct, "upstream_ms": {"below": below}}
        answer: list[int | None] = coordinator.act("times", request)["seen_ms"]
        return answer

    assert seen([900, 800], 300) == [None, 800], "the other operator below has reported nothing"
    python = replace(BEGIN, spec=replace(DELAYED, name="python"), uid="python", times=DIRECT)
    coordinator.begin(python)
    python_header = {"query": "q", "run": "run", "operator": "python", "batch": 0}
    for partition in (0, 1):
        report = asdict(summary(partition, watermark_ms=400))
        coordinator.act("committed", {**python_header, "summary": report})
    assert seen([None, 800], 300) == [300 - 5 + 10, 800]
    assert seen([None, 800], 500) == [400 + 10, 800]
    with pytest.raises(Fenced, match="batch 3"):
        coordinator.act("times", {**header, "batch": 3, "direct_ms": [], "upstream_ms": {}})


def test_a_python_operator_above_one_in_the_jvm_goes_by_its_plan(
    coordinator: Coordinator, view: View
) -> None:
    view.fresh = True
    coordinator.act("plan", planned("below", DIRECT, batch=4))
    behind = TimeInputs(("n",), through=("n",), upstream=(("below", 5),))
    ask = replace(BEGIN, spec=DELAYED, uid="top", times=behind, batch=4)
    assert coordinator.begin(ask)["seen_ms"] == [400 - 5 + 10]


def test_a_task_of_an_earlier_run_changes_nothing(coordinator: Coordinator, view: View) -> None:
    """It would fix the batch's event times before Spark has seen them all, and pass for progress."""
    coordinator.begin(BEGIN)
    view.run = "next"
    coordinator.begin(replace(BEGIN, run="next", stage=2, attempt=1))
    with pytest.raises(Fenced, match="run run"):
        coordinator.begin(replace(BEGIN, spec=DELAYED, times=DIRECT, attempt=2))
    assert view.reads == 0
    with pytest.raises(Fenced, match="run run"):
        commit(coordinator, 0, 0)
    assert coordinator.progress("q", "counts") == []
    commit(coordinator, 0, 0, run="next")
    assert [batch.partitions for batch in coordinator.progress("q", "counts")] == [1]


def test_what_a_commit_did_behind_the_next_batch_is_told_with_that_one(view: View) -> None:
    tracked = TrackedOperator(view)
    tracked.begin(BEGIN)
    tracked.committed("run", 0, summary(0, commit="async", log_ms=1.0, hidden=None))
    assert tracked.progress()[0].hidden_ms == 0
    tracked.committed("run", 1, summary(0, 1, commit="async", hidden=Hidden(0, 2.0, 3.0, 4.0)))
    first, second = tracked.progress()
    assert (first.seal_ms, first.upload_ms, first.publish_ms, first.hidden_ms) == (2.0, 3.0, 4.0, 9.0)
    assert (first.log_ms, second.hidden_ms) == (1.0, 0)


def heartbeat(coordinator: Coordinator, machine: str) -> dict[str, Any]:
    return coordinator.heartbeat(machine, HostReport(1, {"tcp": f"grpc+tcp://{machine}:1"}, {}))


def test_a_partition_stays_where_it_is(coordinator: Coordinator, clock: ManualClock) -> None:
    coordinator.begin(BEGIN)
    heartbeat(coordinator, "a")
    commit(coordinator, 0, 0, 1)
    clock.advance_ms(5_000)
    heartbeat(coordinator, "a")
    answer = coordinator.begin(replace(BEGIN, batch=1, stage=2, machine="b"))
    assert answer["partitions"] == [
        {"partition": 0, "machine": "a", "address": "grpc+tcp://a:1", "door": None}
    ]
    clock.advance_ms(TIMES.host_lost_s * 1000 + 1)
    answer = coordinator.begin(replace(BEGIN, batch=1, stage=2, machine="b", attempt=1))
    assert answer["partitions"] == [{"partition": 0, "machine": "b", "address": None, "door": None}]
    assert set(coordinator.hosts()) == set()


def test_an_unreachable_owner_is_replaced(coordinator: Coordinator) -> None:
    coordinator.begin(BEGIN)
    heartbeat(coordinator, "a")
    answer = coordinator.begin(replace(BEGIN, machine="b", attempt=1, avoid="a"))
    assert answer["partitions"] == [{"partition": 0, "machine": "b", "address": None, "door": None}]


def test_ending_is_told(coordinator: Coordinator) -> None:
    assert heartbeat(coordinator, "a") == {"ending": False, "ended": []}
    assert [host.pid for host in coordinator.end()] == [1]
    assert heartbeat(coordinator, "a") == {"ending": True, "ended": []}


def test_a_host_is_told_which_of_the_queries_in_its_memory_have_ended(
    coordinator: Coordinator, view: View
) -> None:
    partitions = [
        {"query": "q", "store": "rmw"},
        {"query": "old", "store": "aar"},
        {"query": "gone", "store": None},
    ]
    host = HostReport(1, {}, {"partitions": partitions})
    assert coordinator.heartbeat("a", host)["ended"] == ["old"]
    view.run = None
    assert coordinator.heartbeat("a", host)["ended"] == ["old", "q"]
    coordinator.end()
    assert coordinator.heartbeat("a", host)["ended"] == [], "Spark is not asked any more"
