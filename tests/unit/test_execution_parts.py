"""Protects the parts of the asynchronous controller: key accounting, buffers, epochs."""

from __future__ import annotations

import pytest

from headrace.execution.accounting import KeyAccounting, NotHolder
from headrace.execution.buffers import ActiveBuffer, BlockingBuffer
from headrace.execution.epochs import Epoch, EpochClosed, EpochManager, EpochState


def test_a_key_has_one_holder() -> None:
    accounting, first, second = KeyAccounting(), object(), object()
    assert accounting.occupy("k", first)
    assert accounting.occupy("k", first)
    assert not accounting.occupy("k", second)
    accounting.release("k", first)
    assert accounting.is_free("k")
    assert accounting.occupy("k", second)
    assert len(accounting) == 1


def test_only_the_holder_releases_a_key() -> None:
    accounting, first, second = KeyAccounting(), object(), object()
    with pytest.raises(NotHolder, match="'k'"):
        accounting.release("k", first)
    accounting.occupy("k", first)
    with pytest.raises(NotHolder):
        accounting.release("k", second)
    assert not accounting.is_free("k")


def test_the_blocking_buffer_keeps_the_order_of_each_key() -> None:
    buffer = BlockingBuffer[int]()
    for number, key in enumerate("abab"):
        buffer.push(key, number)
    assert len(buffer) == 4
    assert [buffer.pop(key) for key in "baabc"] == [1, 0, 2, 3, None]
    assert len(buffer) == 0
    buffer.push("a", 9)
    buffer.clear()
    assert (len(buffer), buffer.pop("a")) == (0, None)


def test_the_active_buffer_reports_when_it_is_full() -> None:
    buffer = ActiveBuffer[int](3)
    assert [buffer.push(number) for number in range(3)] == [False, False, True]
    assert buffer.take() == [0, 1, 2]
    assert (len(buffer), buffer.take()) == (0, [])


def test_an_epoch_finishes_after_its_last_record() -> None:
    epochs, events = EpochManager(), list[str]()
    epoch = epochs.enter()
    assert epochs.enter() is epoch
    assert epoch.state is EpochState.OPEN
    epochs.leave(epoch)
    epochs.close(done=lambda _: events.append("watermark"))
    assert (epoch.state, events) == (EpochState.CLOSED, [])
    assert epochs.is_blocked
    epochs.leave(epoch)
    assert (epoch.state, events) == (EpochState.FINISHED, ["watermark"])
    assert not epochs.is_blocked
    with pytest.raises(EpochClosed):
        epochs.enter(epoch)


def test_an_empty_epoch_finishes_at_once() -> None:
    epochs, events = EpochManager(), list[str]()
    epochs.close(done=lambda _: events.append("one"))
    epochs.close(done=lambda _: events.append("two"))
    assert (events, len(epochs)) == (["one", "two"], 1)


def test_a_finished_epoch_waits_for_those_before_it() -> None:
    """The figure of the paper: epoch two is finished, its watermark waits for epoch one."""
    epochs, events = EpochManager(overlapping=True), list[int]()
    one = epochs.enter()
    epochs.close(done=lambda _: events.append(1))
    assert not epochs.is_blocked
    two = epochs.enter()
    epochs.close(done=lambda _: events.append(2))
    epochs.leave(two)
    assert (one.state, two.state, events) == (EpochState.CLOSED, EpochState.FINISHED, [])
    epochs.leave(one)
    assert (one.state, events, len(epochs)) == (EpochState.FINISHED, [1, 2], 1)


def test_calls_of_a_trigger_belong_to_its_epoch() -> None:
    epochs, events = EpochManager(), list[str]()

    def fire(epoch: Epoch) -> None:
        events.append("timers")
        epochs.enter(epoch)

    rows = epochs.enter()
    epochs.close(fire, lambda _: events.append("watermark"))
    assert events == []
    epochs.leave(rows)
    assert (rows.state, events) == (EpochState.CLOSED, ["timers"])
    epochs.leave(rows)
    assert (rows.state, events) == (EpochState.FINISHED, ["timers", "watermark"])


def test_a_trigger_whose_calls_complete_at_once_goes_on() -> None:
    epochs, events = EpochManager(), list[str]()

    def fire(epoch: Epoch) -> None:
        epochs.enter(epoch)
        epochs.leave(epoch)
        events.append("timers")

    epochs.close(fire, lambda _: events.append("watermark"))
    assert events == ["timers", "watermark"]
