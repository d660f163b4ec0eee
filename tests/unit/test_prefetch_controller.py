"""Protects the choice of a lookahead. Hints begin where rows wait, come from the latest candidate in time,
end where they are not used or not needed, and settle within three batches after a change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from headrace.plan.lookahead import (
    DOOR,
    INPUT,
    REASONS,
    RESULTS,
    SCOUT,
    STAGE,
    Candidates,
    Prefetch,
    PrefetchSettings,
    caches_rows,
    candidates_of,
)
from headrace.plan.spec import Fold, OperatorSpec
from headrace.plan.work.changes.retracting import Retracting
from headrace.plan.work.changes.top import Top
from headrace.plan.work.dedup import Dedup
from headrace.plan.work.joins.stream_join import Matching, Meets, StreamJoin
from headrace.plan.work.registry import WORKS
from headrace.prefetch.choices import Lookaheads
from headrace.prefetch.controller import HOT, QUIET_BATCHES, SETTLING_BATCHES, Choice, after, begin
from headrace.store.base.waits import WaitHistogram
from headrace.testing.contracts.store_contract import SESSION, TUMBLE, folding, keeping
from headrace.wire.state_reads import NO_READS, StateReads

THREE = Candidates((SCOUT, STAGE, DOOR))


def spread(rows: int, wait_ms: float) -> tuple[tuple[int, int], ...]:
    histogram = WaitHistogram()
    histogram.add(rows, wait_ms)
    return histogram.pairs()


@dataclass
class World:
    """Batches by a virtual clock: the slack of each candidate, the time of a read, who hints wrong keys."""

    fetch_ms: float = 20.0
    keys: int = 1000
    slacks_ms: dict[str, float] = field(default_factory=lambda: {SCOUT: 900.0, STAGE: 300.0, DOOR: 4.0})
    wrong: frozenset[str] = frozenset()

    def batch(self, active: str) -> StateReads:
        if not self.keys:
            return NO_READS
        if not active:
            return StateReads(wait_ms=self.fetch_ms, looked_up=self.keys)
        slack_ms, wrong = self.slacks_ms[active], active in self.wrong
        return StateReads(
            wait_ms=max(0.0, self.fetch_ms - slack_ms),
            looked_up=self.keys,
            hits=0 if wrong else self.keys,
            lookahead=active,
            fetched=self.keys,
            in_vain=self.keys if wrong else 0,
            slacks=() if wrong else spread(self.keys, slack_ms),
            fetches=spread(self.keys, self.fetch_ms),
        )


def run(world: World, choice: Choice, batches: int, waste: float = 0.0) -> Choice:
    for _ in range(batches):
        choice = after(choice, world.batch(choice.active), THREE, "auto", waste)
    return choice


def test_hints_begin_where_rows_wait_and_come_from_the_latest_candidate_in_time() -> None:
    first = begin(THREE, "auto")
    assert first.active == ""
    assert run(World(), first, 1).active == DOOR
    assert run(World(), first, 3).active == STAGE
    assert run(World(), first, 50).active == STAGE
    assert run(World(fetch_ms=500.0), first, 4).active == SCOUT
    assert run(World(fetch_ms=5000.0), first, 9).active == SCOUT, "most slack, where none suffices"


def test_resident_state_gets_no_hints() -> None:
    assert run(World(keys=0), begin(THREE, "auto"), 100).active == ""
    assert after(begin(THREE, "auto"), StateReads(wait_ms=0.2, looked_up=9), THREE, "auto").active == ""


def test_the_papers_figure_10() -> None:
    """Operator 1 changes the keys at batch 40, reads become fast at batch 80; reads in vain are known two
    batches later."""
    candidates = Candidates((SCOUT, INPUT, STAGE, DOOR))
    slacks_ms = {SCOUT: 900.0, INPUT: 250.0, STAGE: 60.0, DOOR: 4.0}
    choice, active, in_vain = begin(candidates, "auto"), [], [0, 0]
    for batch in range(120):
        wrong = frozenset({SCOUT}) if batch >= 40 else frozenset()
        reads = World(300.0 if batch < 80 else 20.0, 1000, slacks_ms, wrong).batch(choice.active)
        in_vain.append(reads.in_vain)
        active.append(choice.active)
        choice = after(choice, replace(reads, in_vain=in_vain[batch]), candidates, "auto")
    assert active[6:40] == [SCOUT] * 34, "the only one in time"
    assert active[43:80] == [INPUT] * 37, "of the right keys, the one with most slack"
    assert active[83:] == [STAGE] * 37, "the latest one in time"


def test_one_slow_batch_changes_nothing() -> None:
    choice = run(World(), begin(THREE, "auto"), 10)
    assert choice.active == STAGE
    choice = run(World(fetch_ms=700.0), choice, 1)
    assert choice.active == STAGE
    assert run(World(), choice, 5).active == STAGE
    assert run(World(fetch_ms=700.0), choice, 2).active == SCOUT, "two of them do"


def test_a_batch_without_reads_is_no_measurement_of_them() -> None:
    choice = run(World(fetch_ms=200.0), begin(THREE, "auto"), 10)
    assert choice.active == STAGE
    missed = StateReads(looked_up=50, wait_ms=9.0, lookahead=STAGE)
    assert after(choice, missed, THREE, "auto").active == STAGE


def test_the_sketchs_threshold_follows_the_misses() -> None:
    used = StateReads(hits=900, fetched=900, slacks=spread(900, 300.0), fetches=spread(900, 20.0))
    missing = replace(used, looked_up=1000, hints=900)
    resident = replace(used, looked_up=900, hints=10_000, filtered=9_000)
    choice = Choice(STAGE)
    more = [choice := after(choice, missing, THREE, "auto") for _ in range(4)]
    assert [one.hot for one in more] == [128, 255, 255, 255]
    less = [choice := after(choice, resident, THREE, "auto") for _ in range(6)]
    assert [one.hot for one in less] == [127, 63, 31, 15, 8, 8]
    full = replace(missing, dropped=5)
    assert after(Choice(STAGE), full, THREE, "auto").hot == HOT, "more hints would find no room"


def test_hints_end_where_state_fits_into_memory_again() -> None:
    choice = run(World(), begin(THREE, "auto"), 5)
    choice = run(World(keys=0), choice, QUIET_BATCHES)
    assert (choice.active, choice.reason) == ("", "all state in use is in memory")
    assert run(World(), choice, 3).active == STAGE


def test_a_candidate_with_other_keys_is_discarded_with_all_before_it() -> None:
    choice = run(World(), begin(THREE, "auto"), 5)
    assert choice.active == STAGE
    choice = run(World(wrong=frozenset({STAGE})), choice, SETTLING_BATCHES + 1)
    assert choice.discarded == {SCOUT, STAGE}
    assert choice.active == DOOR
    assert run(World(fetch_ms=1000.0), choice, 20).active == DOOR, "what is discarded does not come back"


def test_a_flood_of_useless_hints_ends_by_itself() -> None:
    everything = World(wrong=frozenset(THREE.names))
    choice = run(everything, begin(THREE, "auto"), 60)
    assert choice.active == ""
    assert choice.discarded == set(THREE.names)
    assert "in vain" in choice.reason


def test_waste_is_tolerated_as_far_as_set() -> None:
    choice = Choice(STAGE, since=SETTLING_BATCHES)
    some = StateReads(looked_up=90, hits=90, fetched=100, in_vain=10, slacks=spread(90, 300.0))
    assert after(choice, some, THREE, "auto", 0.0).active == DOOR
    assert STAGE not in after(choice, some, THREE, "auto", 0.2).discarded


def test_the_choice_follows_slower_and_faster_reads_within_three_batches() -> None:
    choice = run(World(), begin(THREE, "auto"), 10)
    slow = run(World(fetch_ms=500.0), choice, 3)
    assert slow.active == SCOUT
    fast = run(World(fetch_ms=100.0), slow, 3)
    assert fast.active == STAGE


@pytest.mark.parametrize(
    ("mode", "active"), [("on", STAGE), ("scout", SCOUT), ("input", STAGE), ("door", DOOR), ("off", "")]
)
def test_a_setting_overrules_what_is_measured(mode: Prefetch, active: str) -> None:
    choice = begin(THREE, mode)
    for keys in (0, 1000, 0):
        choice = after(choice, World(keys=keys).batch(choice.active), THREE, mode)
    assert choice.active == active


def test_candidates_are_for_stores_that_read_on_arrival() -> None:
    assert candidates_of(folding(None, "changes"), in_jvm=True).names == (STAGE, DOOR)
    assert candidates_of(folding(None, "changes"), in_jvm=False).names == (DOOR,)
    early = candidates_of(folding(None, "changes"), in_jvm=True, early=[RESULTS, SCOUT])
    assert early.names == (SCOUT, RESULTS, STAGE, DOOR)
    assert REASONS.keys() == WORKS.keys() - {work.name for work in (Fold, Retracting, Dedup, Top)}
    for spec in (
        folding(TUMBLE, "final"),
        folding(SESSION, "final"),
        keeping(TUMBLE),
        joining("settled"),
        joining("both", "anti"),
    ):
        candidates = candidates_of(spec, in_jvm=True)
        assert candidates.names == ()
        assert candidates.reason
        assert begin(candidates, "on").reason == candidates.reason


@pytest.mark.parametrize("meets", ["both", "arrival"])
def test_joins_whose_rows_meet_when_they_come_have_candidates(meets: Meets) -> None:
    """Frequent keys are not in memory there, so they get hints too."""
    assert candidates_of(joining(meets), in_jvm=True).names == (STAGE, DOOR)
    assert not caches_rows(joining(meets).work)
    assert caches_rows(folding(None, "changes").work)


def joining(meets: Meets, how: Matching = "inner") -> OperatorSpec:
    join = StreamJoin(how, (), (), 0, 10, 2, meets)
    return replace(folding(None, "changes"), work=join, delays_ms=(0, 0), timed=True, store="aar")


def test_missing_candidates_have_reasons() -> None:
    spec, files = folding(None, "changes"), ((SCOUT, "its source is not files"),)
    assert candidates_of(spec, in_jvm=True, missing=files).missing == files
    assert dict(candidates_of(spec, in_jvm=False).missing) == {STAGE: "the operator runs in Python workers"}


def test_each_batch_counts_once_and_a_new_start_begins_anew() -> None:
    choices, spec, auto = Lookaheads(), folding(None, "changes"), PrefetchSettings("auto")
    waited, late = StateReads(wait_ms=50.0, looked_up=10), candidates_of(spec, in_jvm=True)
    batches = [(0, waited)]
    assert choices.choose("q", "run", spec, auto, late, [], batch=0).active == ""
    for _ in range(3):
        assert choices.choose("q", "run", spec, auto, late, batches, batch=1).active == DOOR
    assert choices.choice("q", spec.name) == choices.choice("q", spec.name)
    assert choices.choose("q", "again", spec, auto, late, [], batch=1).active == ""
    choices.drop({"q"})
    assert choices.choice("q", spec.name) is None
