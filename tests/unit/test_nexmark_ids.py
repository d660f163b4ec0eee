"""Protects NEXMark's kinds, ids, times and references: exact equality with the formulas, one event at a
time in plain Python, with its own SplitMix64.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.generators.nexmark import NexmarkConfig, NexmarkGenerator

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
BASE = 1_436_918_400_000
RANGES = [(0, 700), (4_990, 5_210), (49_900, 50_300), (10_000_000, 10_000_400)]


def splitmix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def uniform(seed: int, event: int, draw: int, bound: int) -> int:
    key = splitmix((splitmix(seed) + event * GAMMA) & MASK)
    return (splitmix((key + (draw + 1) * GAMMA) & MASK) >> 32) * bound >> 32


def event_id(n: int, g: int) -> int:
    return (n // g) * g + (n * 953) % g


def last_person(event: int) -> int:
    return event // 50 + min(event % 50, 0)


def last_auction(event: int) -> int:
    rem = event % 50
    if rem < 1:
        return (event // 50 - 1) * 3 + 2
    return event // 50 * 3 + (2 if rem >= 4 else rem - 1)


def some_person(seed: int, event: int, draw: int) -> int:
    people = last_person(event) + 1
    active = min(people, 1000)
    return people - active + uniform(seed, event, draw, active + 10)


def some_auction(seed: int, event: int, draw: int) -> int:
    last = last_auction(event)
    low = max(last - 100, 0)
    return low + uniform(seed, event, draw, last - low + 1 + 10)


def seller(seed: int, event: int) -> int:
    hot = uniform(seed, event, 2, 4) > 0
    return 1000 + (last_person(event) // 100 * 100 if hot else some_person(seed, event, 3))


def bid_auction(seed: int, event: int) -> int:
    hot = uniform(seed, event, 2, 2) > 0
    return 1000 + (last_auction(event) // 100 * 100 if hot else some_auction(seed, event, 3))


def bidder(seed: int, event: int) -> int:
    hot = uniform(seed, event, 4, 4) > 0
    return 1000 + (last_person(event) // 100 * 100 + 1 if hot else some_person(seed, event, 5))


def ms(moment: object) -> int:
    return round(moment.timestamp() * 1000)  # type: ignore[attr-defined]


@pytest.mark.parametrize("group", [1, 7, 100])
@pytest.mark.parametrize(("start", "stop"), RANGES)
def test_every_event_follows_the_formulas(start: int, stop: int, group: int) -> None:
    seed, rate = 42, 3000
    config = NexmarkConfig(seed=seed, rate=rate, out_of_order_group=group)
    rows = NexmarkGenerator(config).batch("all", start, stop).to_pylist()
    assert len(rows) == stop - start
    for n, row in zip(range(start, stop), rows, strict=True):
        event = event_id(n, group)
        rem = event % 50
        assert row["event_type"] == (0 if rem < 1 else 1 if rem < 4 else 2)
        assert [row[name] is not None for name in ("person", "auction", "bid")] == [
            row["event_type"] == kind for kind in range(3)
        ]
        time = BASE + event * 1000 // rate
        assert ms(row["dateTime"]) == time
        if rem < 1:
            assert row["person"]["id"] == 1000 + last_person(event)
        elif rem < 4:
            check_auction(row["auction"], seed, event, time, rate)
        else:
            assert row["bid"]["auction"] == bid_auction(seed, event)
            assert row["bid"]["bidder"] == bidder(seed, event)
            assert ms(row["bid"]["dateTime"]) == time


def check_auction(row: dict[str, object], seed: int, event: int, time: int, rate: int) -> None:
    assert row["id"] == 1000 + last_auction(event)
    assert row["seller"] == seller(seed, event)
    assert row["category"] == 10 + uniform(seed, event, 4, 5)
    ahead = BASE + (event + 1666) * 1000 // rate - time
    assert ms(row["expires"]) == time + 1 + uniform(seed, event, 6, max(2 * ahead, 1))


def test_ids_are_dense_and_in_order() -> None:
    generator = NexmarkGenerator()
    assert generator.batch("person", 0, 5000).column("id").to_pylist() == list(range(1000, 1100))
    assert generator.batch("auction", 0, 5000).column("id").to_pylist() == list(range(1000, 1300))


def test_negative_and_large_seeds_are_taken_modulo_two_to_the_64() -> None:
    rows = [NexmarkGenerator(NexmarkConfig(seed=seed)).batch("bid", 0, 500) for seed in (-1, MASK, 5)]
    assert rows[0].equals(rows[1])
    assert not rows[0].equals(rows[2])


@pytest.mark.parametrize("group", [1, 7])
def test_persons_and_auctions_are_the_same_rows_without_bids(group: int) -> None:
    generator = NexmarkGenerator(NexmarkConfig(rate=1000, out_of_order_group=group))
    wide = pa.Table.from_batches(generator.batches("all", 13, 90_003))
    without = pa.Table.from_batches(generator.without_bids(13, 90_003))
    assert without.equals(wide.filter(pc.less(wide["event_type"], 2)))
