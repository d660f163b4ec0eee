"""Protects how stores make room: the cheapest steps first, and no more of them than needed."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from headrace.store.base.room import EVICT_TO, evict, excess_bytes, fits, make_room, no_growth
from headrace.store.base.share import UNLIMITED, FixedShare, GrowingShare, Part, PartialShare, Share


@dataclass
class Items:
    """A store whose memory is a list of items."""

    share: Share
    sizes: list[int]
    steps: list[str] = field(default_factory=list)

    @property
    def memory_bytes(self) -> int:
        return sum(self.sizes)

    def step(self, name: str, frees: int) -> None:
        self.steps.append(name)
        self.sizes.append(-frees)

    def drop(self, size: int, excess: int) -> int:
        assert excess == excess_bytes(self, EVICT_TO)
        self.sizes.remove(size)
        return size


def test_steps_are_taken_in_order_until_the_rows_fit() -> None:
    store = Items(FixedShare(100), [90])
    steps = [lambda name=name: store.step(name, 10) for name in ("drop", "evict", "spill")]
    make_room(store, lambda: 10, *steps)
    assert store.steps == []
    make_room(store, lambda: 25, *steps)
    assert store.steps == ["drop", "evict"]
    make_room(store, lambda: 1000, *steps)
    assert store.steps == ["drop", "evict", "drop", "evict", "spill"], "each step is taken once"


def test_a_store_at_its_share_is_left_alone() -> None:
    store = Items(FixedShare(100), [100])
    make_room(store, no_growth, lambda: store.step("evict", 1))
    assert store.steps == []
    assert fits(store)
    assert not fits(store, 1)


@given(st.lists(st.integers(0, 50)), st.integers(1, 200))
def test_an_eviction_drops_the_first_items_and_no_more_than_needed(sizes: list[int], limit: int) -> None:
    store = Items(FixedShare(limit), list(sizes))
    ordered = sorted(sizes, reverse=True)
    evict(store, ordered, store.drop, EVICT_TO)
    left = sorted(store.sizes, reverse=True)
    assert left == ordered[len(ordered) - len(left) :]
    assert sum(left) <= limit // 2
    if len(left) < len(ordered):
        assert sum(left) + ordered[len(ordered) - len(left) - 1] > limit // 2


def test_parts_follow_their_whole() -> None:
    growing = GrowingShare(FixedShare(800), bounded=False)
    inner = PartialShare(growing, Part(3, 8))
    assert inner.limit_bytes == UNLIMITED.limit_bytes * 3 // 8
    growing.bounded = True
    assert (growing.limit_bytes, inner.limit_bytes) == (800, 300)
