"""The source's options, from the strings that a user gives to Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from headrace.errors import QueryError
from headrace.generators.nexmark.config import (
    ACTIVE_PEOPLE,
    BASE_TIME_MS,
    HOT_AUCTION_RATIO,
    HOT_BIDDER_RATIO,
    HOT_SELLER_RATIO,
    IN_FLIGHT_AUCTIONS,
    NexmarkConfig,
)
from headrace.generators.nexmark.schema import schema

NAMES = (
    "view",
    "events",
    "rate",
    "eventsPerBatch",
    "throttle",
    "outOfOrderGroup",
    "lateProbability",
    "lateMaxMs",
    "seed",
    "baseTime",
    "partitions",
    "activePeople",
    "inFlightAuctions",
    "hotAuctionRatio",
    "hotBidderRatio",
    "hotSellerRatio",
    "extra",
)

_T = TypeVar("_T")


@dataclass(frozen=True)
class NexmarkOptions:
    """How a stream is cut and paced; its contents are in `config`."""

    config: NexmarkConfig
    view: str = "all"
    events: int | None = None
    events_per_batch: int = 1_000_000
    throttle: bool = False
    partitions: int = 4

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> NexmarkOptions:
        """Parses the options; names are case-insensitive, and an unknown one is an error."""
        read = _Reader({name.lower(): value for name, value in options.items()})
        config = NexmarkConfig(
            seed=read("seed", int, 0),
            rate=read("rate", int, 10_000),
            base_time_ms=read("baseTime", _time_ms, BASE_TIME_MS),
            out_of_order_group=read("outOfOrderGroup", int, 1),
            late_probability=read("lateProbability", float, 0.0),
            late_max_ms=read("lateMaxMs", int, 3000),
            active_people=read("activePeople", int, ACTIVE_PEOPLE),
            in_flight_auctions=read("inFlightAuctions", int, IN_FLIGHT_AUCTIONS),
            hot_auction_ratio=read("hotAuctionRatio", int, HOT_AUCTION_RATIO),
            hot_bidder_ratio=read("hotBidderRatio", int, HOT_BIDDER_RATIO),
            hot_seller_ratio=read("hotSellerRatio", int, HOT_SELLER_RATIO),
            extra=read("extra", _flag, True),
        )
        view = read("view", _view, "all")
        events = read("events", _whole, None)
        per_batch = read("eventsPerBatch", _positive, 1_000_000)
        throttle, partitions = read("throttle", _flag, False), read("partitions", _positive, 4)
        return cls(config, view, events, per_batch, throttle, partitions)

    def need_events(self, reader: str) -> int:
        """The total number of events; an error without it, because this reader must end."""
        if self.events is None:
            raise QueryError(f"nexmark: {reader} needs an end", hint='add .option("events", …)')
        return self.events


class _Reader:
    """Reads options and turns a bad value into an error that names it."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        unknown = options.keys() - {name.lower() for name in NAMES}
        if unknown:
            raise QueryError(
                f"nexmark: unknown option {', '.join(sorted(unknown))}",
                hint=f"use one of {', '.join(NAMES)}",
            )

    def __call__(self, name: str, convert: Callable[[str], _T], default: _T) -> _T:
        text = self._options.get(name.lower())
        if text is None:
            return default
        try:
            return convert(text)
        except ValueError as error:
            raise QueryError(f"nexmark: {name} is {text!r}", hint=str(error)) from error


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("give true or false")
    return text.lower() == "true"


def _whole(text: str) -> int | None:
    if int(text) < 0:
        raise ValueError("give a number that is not negative")
    return int(text)


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError("give a positive number")
    return int(text)


def _view(text: str) -> str:
    schema(text.lower())
    return text.lower()


def _time_ms(text: str) -> int:
    """Milliseconds since 1970, or an ISO 8601 time; one without an offset is UTC."""
    if text.lstrip("-").isdigit():
        return int(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
