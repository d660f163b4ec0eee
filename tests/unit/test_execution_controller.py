"""Protects the controller: per-key order, callbacks first, the limit, overdraft, drain and epochs, over
random interleavings of completions, against a model that runs one record at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.execution.accounting import NotHolder
from headrace.execution.controller import Controller, Limits, NoRoom
from headrace.execution.epochs import Epoch
from headrace.execution.record import Record


@dataclass
class Program:
    """What a record does: `waits` state requests at once per step, then one change of its key's total."""

    number: int
    waits: list[int]
    answered: int = 0


@dataclass
class Lab:
    """A controller over programs; the test chooses which batch of requests is answered next."""

    limits: Limits
    overlapping: bool = False
    batches: list[list[Record]] = field(default_factory=list)
    started: list[Record] = field(default_factory=list)
    done: list[Record] = field(default_factory=list)
    totals: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    most_in_flight: int = 0

    def __post_init__(self) -> None:
        self.controller = Controller(
            self.start, self.batches.append, self.limits, overlapping=self.overlapping
        )

    def start(self, record: Record) -> bool:
        self.started.append(record)
        return self.step(record)

    def step(self, record: Record) -> bool:
        program: Program = record.item
        if program.waits:
            program.answered = program.waits.pop(0)
            for _ in range(program.answered):
                self.controller.request(record)
            return False
        self.totals[str(record.key)].append(program.number)
        self.done.append(record)
        return True

    def answer(self, record: Record) -> None:
        record.item.answered -= 1
        if record.item.answered == 0 and self.step(record):
            self.controller.finish(record)

    def deliver(self, at: int) -> None:
        for record in self.batches.pop(at):
            self.controller.answer(lambda record=record: self.answer(record))

    def begun(self, records: Iterator[Record]) -> Iterator[Record | None]:
        """A source that starts records itself."""
        for record in records:
            if not self.controller.accounting.is_free(record.key):
                yield record
            elif self.start(record):
                yield None
            else:
                record.is_begun = True
                yield record

    def run(self, records: Iterator[Record | None], choose: st.DataObject) -> None:
        while True:
            most = choose.draw(st.integers(1, 8))
            more = self.controller.advance(records, most)
            self.most_in_flight = max(self.most_in_flight, self.controller.in_flight)
            if self.batches:
                self.deliver(choose.draw(st.integers(0, len(self.batches) - 1)))
            elif not more:
                break


def programs(keys: str, waits: list[list[int]]) -> list[Record]:
    return [Record(key, Program(n, list(w))) for n, (key, w) in enumerate(zip(keys, waits, strict=True))]


WAITS = st.lists(st.integers(1, 4), max_size=3)
RECORDS = st.lists(st.tuples(st.sampled_from("abcd"), WAITS), max_size=40)


@settings(max_examples=150, deadline=None)
@given(RECORDS, st.integers(1, 6), st.integers(1, 5), st.booleans(), st.data())
def test_any_interleaving_gives_each_key_what_one_at_a_time_gives(
    drawn: list[tuple[str, list[int]]],
    in_flight: int,
    active: int,
    is_begun_by_source: bool,
    choose: st.DataObject,
) -> None:
    lab = Lab(Limits(in_flight, active))
    keys, waits = "".join(key for key, _ in drawn), [wait for _, wait in drawn]
    records = iter(programs(keys, waits))
    lab.run(lab.begun(records) if is_begun_by_source else records, choose)
    model: dict[str, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        model[key].append(number)
    assert lab.totals == model
    assert lab.most_in_flight <= in_flight
    assert lab.controller.is_drained
    assert len(lab.controller.accounting) == 0
    assert lab.controller.blocked == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.booleans(), st.data())
def test_a_watermark_passes_after_all_records_before_it_and_its_timers(
    epochs: list[list[tuple[str, list[int]]]], overlapping: bool, choose: st.DataObject
) -> None:
    lab, events = Lab(Limits(4, 3), overlapping), list[int]()

    def trigger(epoch: Epoch) -> None:  # one timer per epoch; it may exceed the limit
        timer = Record("a", Program(1000 + len(events), choose.draw(WAITS)))
        lab.controller.submit(timer, epoch)

    total = 0
    for number, drawn in enumerate(epochs):
        records = programs("".join(key for key, _ in drawn), [wait for _, wait in drawn])
        before = total + len(records) + number + 1
        total += len(records)

        def passed(_: Epoch, before: int = before, number: int = number) -> None:
            assert len(lab.done) >= before if overlapping else len(lab.done) == before
            events.append(number)

        source = iter(records)
        while lab.controller.advance(source, 8):
            if lab.batches:
                lab.deliver(choose.draw(st.integers(0, len(lab.batches) - 1)))
        lab.controller.close_epoch(trigger, passed)
    lab.run(iter(()), choose)
    assert events == list(range(len(epochs)))
    assert lab.controller.is_drained


def test_serial_epochs_admit_nothing_until_the_one_before_is_finished() -> None:
    lab = Lab(Limits(4, 1))
    first, second = programs("ab", [[1], []])
    lab.controller.submit(first)
    lab.controller.close_epoch()
    assert not lab.controller.has_room
    source = iter([second])
    assert lab.controller.advance(source, 5)
    assert lab.done == []
    lab.deliver(0)
    assert not lab.controller.advance(source, 5)
    assert lab.done == [first, second]


def test_callbacks_run_before_new_records() -> None:
    lab = Lab(Limits(9, 1))
    first, second = programs("ab", [[1], []])
    lab.controller.submit(first)
    lab.deliver(0)
    lab.controller.advance(iter([second]), 5)
    assert lab.done == [first, second]


def test_a_record_at_the_limit_may_send_many_requests() -> None:
    """A `gather` in the last record that has room does not wait for room: it would wait for itself."""
    lab = Lab(Limits(in_flight=1, active=2))
    lab.controller.submit(Record("a", Program(0, [7])))
    assert not lab.controller.has_room
    lab.controller.advance(iter(()), 1)
    assert [len(batch) for batch in lab.batches] == [2, 2, 2, 1]
    while lab.batches:
        lab.deliver(len(lab.batches) - 1)
    lab.controller.advance(iter(()), 1)
    assert lab.controller.is_drained


def test_one_hot_key_with_more_records_than_the_limit() -> None:
    lab = Lab(Limits())
    records = programs("k" * 6_001, [[1]] * 6_001)
    source = iter(records)
    assert lab.controller.advance(source, 10_000)
    assert (lab.controller.in_flight, lab.controller.blocked, len(lab.started)) == (6_000, 5_999, 1)
    while lab.batches:
        lab.deliver(0)
        lab.controller.advance(source, 10_000)
    assert lab.totals["k"] == list(range(6_001))


def test_misuse_is_an_error() -> None:
    lab = Lab(Limits(in_flight=1))
    record, other = programs("ab", [[1], []])
    lab.controller.submit(record)
    with pytest.raises(NoRoom):
        lab.controller.submit(other)
    with pytest.raises(NotHolder):
        lab.controller.finish(other)


def test_a_record_that_never_waits_is_never_accounted_for() -> None:
    lab = Lab(Limits(in_flight=1))
    lab.controller.advance(iter(programs("aab", [[], [], []])), 9)
    assert len(lab.done) == 3
    assert (lab.most_in_flight, len(lab.controller.epochs)) == (0, 1)
