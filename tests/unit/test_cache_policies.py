"""Protects the cache policies. A table under each policy has the hit ratio of a plain implementation on the
same trace. Hints pin rows where the order is that of time, and pins end where only pinned rows are left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cache_reference import PlainCache, PlainClock, PlainLru, PlainTimes

from headrace.cache.policy import POLICIES, TIME_UNIT_US, PolicyName, TimestampAware, policy_of
from headrace.plan.spec import Accumulator, Field, Fold, OperatorSpec
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.rows import size
from headrace.store.tables.table import Table

SPEC = OperatorSpec(
    "op",
    (Field("k", "int64"),),
    (),
    Fold((Accumulator("count", None, "int64"),)),
    None,
    "changes",
    False,
    (),
    1,
)
LAYOUT = RowLayout(SPEC)
ROWS = 2000  # that memory has room for
LOW = 1000  # that a sweep leaves
BLOCK = 50
REFERENCES: dict[PolicyName, type[PlainCache]] = {
    "timestamp": PlainTimes,
    "lru": PlainLru,
    "clock": PlainClock,
}


def zipf(rng: np.random.Generator, keys: int, n: int) -> np.ndarray:
    """Keys of a skewed distribution."""
    weights = 1 / np.arange(1, keys + 1) ** 0.9
    return rng.choice(keys, n, p=weights / weights.sum())


def drifting(rng: np.random.Generator, keys: int, n: int) -> np.ndarray:
    """Auctions: half of the rows go to the hottest, which changes; the rest to those that are open."""
    at = np.arange(n) * keys // n
    return np.where(rng.random(n) < 0.5, at - at % 97, np.maximum(0, at - rng.integers(0, 3000, n)))


def scanning(rng: np.random.Generator, keys: int, n: int) -> np.ndarray:
    """A few keys in use, and all others once after another."""
    return np.where(rng.random(n) < 0.6, rng.integers(0, 700, n), 700 + np.arange(n) % keys)


TRACES: dict[str, Callable[..., np.ndarray]] = {"zipf": zipf, "drifting": drifting, "scanning": scanning}


def hash_of(keys: np.ndarray) -> np.ndarray:
    return keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def probe(keys: np.ndarray) -> Run:
    words = np.zeros((len(keys), LAYOUT.key_width), np.uint64)
    words[:, -1] = keys.astype(np.uint64)
    return Run(hash_of(keys), words, np.empty(0, np.uint8))


class TableCache:
    """A table that is used and swept as a store does it; counts hits."""

    def __init__(self, name: PolicyName) -> None:
        self.policy = policy_of(name)
        self.table = Table(LAYOUT, second_chance=self.policy.second_chance)
        self.hits = self.uses = 0

    def use(self, keys: np.ndarray, block: int) -> None:
        self.table.use(self.policy.used(block, block * TIME_UNIT_US))
        _, fresh = self.table.upsert(probe(keys))
        self.uses += len(keys)
        self.hits += len(keys) - len(fresh)

    def sweep(self, low: int) -> None:
        self.table.evict(size.table_bytes(LAYOUT.width, low, 0))


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("name", POLICIES)
def test_hit_ratios_are_those_of_a_plain_cache(name: PolicyName, trace: str) -> None:
    keys = TRACES[trace](np.random.default_rng(7), 20_000, 60_000)
    table, plain = TableCache(name), REFERENCES[name]()
    for block, start in enumerate(range(0, len(keys), BLOCK), start=1):
        part = keys[start : start + BLOCK]
        if len(table.table) + BLOCK > ROWS:
            table.table.settle()
            table.sweep(LOW)
            plain.clean()
        if len(plain.marks) + BLOCK > ROWS:
            plain.clean()
            plain.sweep(LOW)
        table.use(part, block)
        for key in part.tolist():
            plain.use(key, block)
    assert table.uses == plain.uses
    assert 0.05 < plain.hits / plain.uses < 0.95
    assert table.hits / table.uses == pytest.approx(plain.hits / plain.uses, abs=0.01)


def kept(table: Table) -> set[int]:
    return set(table.whole_run().words[:, LAYOUT.key_width - 1].tolist())


@pytest.mark.parametrize("name", POLICIES)
def test_a_hint_pins_rows_only_where_the_order_is_that_of_time(name: PolicyName) -> None:
    cache = TableCache(name)
    for block, start in enumerate(range(0, 1000, 100), start=1):
        cache.use(np.arange(start, start + 100), block)
    cache.table.settle()
    hints = np.array([*range(50), 5000, 5001])
    resident = cache.table.expect(hash_of(hints), cache.policy.expected(11, 12 * TIME_UNIT_US))
    assert resident.tolist() == [True] * 50 + [False] * 2
    cache.sweep(200)
    assert 0 < len(kept(cache.table)) <= 200
    assert (set(range(50)) <= kept(cache.table)) == (name == "timestamp")


def test_pins_end_where_only_pinned_rows_are_left() -> None:
    cache = TableCache("timestamp")
    cache.use(np.arange(1000), 1)
    cache.table.settle()
    assert cache.table.expect(hash_of(np.arange(1000)), 99).all()
    cache.sweep(100)
    assert len(cache.table) <= 100


def test_marks_count_on_beyond_their_bits() -> None:
    cache = TableCache("timestamp")
    near = (1 << 32) - 2
    for step in range(5):
        cache.table.use(near + step)
        cache.table.upsert(probe(np.arange(step * 100, step * 100 + 100)))
    cache.table.settle()
    cache.sweep(200)
    assert kept(cache.table) <= set(range(300, 500))


def test_a_mark_is_the_event_time_or_the_block() -> None:
    policy = TimestampAware()
    assert policy.used(7, None) == 7 < policy.expected(7, None)
    assert policy.used(7, 10 * TIME_UNIT_US) == policy.expected(3, 10 * TIME_UNIT_US) == 10
    assert policy_of("lru").expected(7, 10) is None
