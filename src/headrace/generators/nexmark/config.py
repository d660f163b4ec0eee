"""The configuration of a NEXMark stream: Beam's constants, and the settings of one stream."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace.errors import QueryError

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EPOCH_EVENTS = PERSONS + AUCTIONS + BIDS

FIRST_PERSON_ID = 1000
FIRST_AUCTION_ID = 1000
FIRST_CATEGORY_ID = 10
CATEGORIES = 5

ID_LEAD = 10
ACTIVE_PEOPLE = 1000
IN_FLIGHT_AUCTIONS = 100

HOT_AUCTION_RATIO = 2
HOT_SELLER_RATIO = 4
HOT_BIDDER_RATIO = 4
HOT_BATCH = 100

PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100

SHUFFLE_PRIME = 953
"""Beam's multiplier for event numbers inside an out-of-order group."""

BASE_TIME_MS = 1_436_918_400_000
"""2015-07-15T00:00:00Z, Beam's base time."""


@dataclass(frozen=True)
class NexmarkConfig:
    """The settings of one stream; two equal configurations make the same events.

    Parameters
    ----------
    seed : int
        Chooses the random values. Ids, kinds and order do not depend on it.
    rate : int
        Events per second of event time.
    base_time_ms : int
        Event time of event 0, in milliseconds since 1970.
    out_of_order_group : int
        Event numbers are permuted inside groups of this size; 1 keeps them in order.
    late_probability, late_max_ms : float, int
        With this probability an event's time is moved back by 1 to `late_max_ms` milliseconds.
    extra : bool
        Whether the `extra` columns hold padding; when false they are empty strings.
    active_people, in_flight_auctions : int
        How many people bid and sell at a time, and on how many auctions; Beam's defaults.
    hot_auction_ratio, hot_bidder_ratio, hot_seller_ratio : int
        Of this many bids (auctions), all but one go to the hot auction, bidder or seller; 1: none is hot.
    """

    seed: int = 0
    rate: int = 10_000
    base_time_ms: int = BASE_TIME_MS
    out_of_order_group: int = 1
    late_probability: float = 0.0
    late_max_ms: int = 3000
    extra: bool = True
    active_people: int = ACTIVE_PEOPLE
    in_flight_auctions: int = IN_FLIGHT_AUCTIONS
    hot_auction_ratio: int = HOT_AUCTION_RATIO
    hot_bidder_ratio: int = HOT_BIDDER_RATIO
    hot_seller_ratio: int = HOT_SELLER_RATIO

    def __post_init__(self) -> None:
        _check(self.rate >= 1, f"rate is {self.rate}", "give at least one event per second")
        _check(
            self.out_of_order_group >= 1 and math.gcd(SHUFFLE_PRIME, self.out_of_order_group) == 1,
            f"outOfOrderGroup is {self.out_of_order_group}",
            f"give a positive number that is not a multiple of {SHUFFLE_PRIME}, or events would repeat",
        )
        _check(
            0.0 <= self.late_probability <= 1.0,
            f"lateProbability is {self.late_probability}",
            "give a number from 0 to 1",
        )
        _check(
            1 <= self.late_max_ms < 1 << 32,
            f"lateMaxMs is {self.late_max_ms}",
            "give at least 1 millisecond",
        )
        for name, number in self._crowd().items():
            _check(1 <= number < 1 << 31, f"{name} is {number}", "give a positive number below 2**31")

    def _crowd(self) -> dict[str, int]:
        return {
            "activePeople": self.active_people,
            "inFlightAuctions": self.in_flight_auctions,
            "hotAuctionRatio": self.hot_auction_ratio,
            "hotBidderRatio": self.hot_bidder_ratio,
            "hotSellerRatio": self.hot_seller_ratio,
        }


def _check(holds: bool, problem: str, hint: str) -> None:
    if not holds:
        raise QueryError(f"nexmark: {problem}", hint=hint)
