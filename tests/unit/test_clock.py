"""Protects the clock: deadlines and waits follow it, and a manual clock replaces the machine's."""

from __future__ import annotations

import threading

import pytest

from headrace.clock import SYSTEM_CLOCK, Clock, Deadline, wait_until
from headrace.testing import ManualClock


def test_a_deadline_is_over_when_its_time_has_passed() -> None:
    clock = ManualClock(5_000)
    deadline = Deadline(100, clock)
    clock.advance_ms(99)
    assert (deadline.left_ms, deadline.is_over) == (1, False)
    clock.advance_ms(1)
    assert (deadline.left_ms, deadline.is_over) == (0, True)


def test_a_condition_is_checked_until_it_holds_or_time_is_up() -> None:
    clock = ManualClock()
    assert wait_until(lambda: clock.now_ms() >= 30, within_ms=100, every_ms=10, clock=clock)
    assert clock.slept_ms == [10, 10, 10]
    assert not wait_until(lambda: False, within_ms=25, every_ms=10, clock=clock)
    assert clock.slept_ms == [10] * 6


@pytest.mark.parametrize("clock", [SYSTEM_CLOCK, ManualClock()], ids=["system", "manual"])
def test_a_wait_ends_with_its_event_or_with_its_time(clock: Clock) -> None:
    event = threading.Event()
    began_ms = clock.monotonic_ms()
    assert not clock.wait(event, 20)
    assert clock.monotonic_ms() - began_ms >= 20
    event.set()
    assert clock.wait(event, 3_600_000)


@pytest.mark.parametrize("clock", [SYSTEM_CLOCK, ManualClock()], ids=["system", "manual"])
def test_a_condition_can_be_waited_for(clock: Clock) -> None:
    condition = threading.Condition()
    with condition:
        assert not clock.wait(condition, 5)
