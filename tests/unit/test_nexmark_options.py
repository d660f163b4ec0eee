"""Protects the reading of options: defaults, every name, and errors that name the option."""

from __future__ import annotations

import pytest

from headrace.errors import QueryError
from headrace.generators.nexmark.config import NexmarkConfig
from headrace.generators.nexmark.options import NexmarkOptions


def test_defaults_are_beams() -> None:
    options = NexmarkOptions.parse({})
    assert options == NexmarkOptions(NexmarkConfig())
    assert (options.config.rate, options.config.base_time_ms) == (10_000, 1_436_918_400_000)
    assert options.events is None


def test_every_option_is_read_whatever_its_case() -> None:
    options = NexmarkOptions.parse(
        {
            "VIEW": "Bid",
            "events": "10",
            "rate": "5",
            "eventsperbatch": "3",
            "throttle": "TRUE",
            "outOfOrderGroup": "4",
            "lateProbability": "0.5",
            "lateMaxMs": "9",
            "seed": "-2",
            "baseTime": "2020-01-01T00:00:00Z",
            "partitions": "2",
            "extra": "false",
            "activePeople": "11",
            "inFlightAuctions": "12",
            "hotAuctionRatio": "13",
            "hotBidderRatio": "14",
            "hotSellerRatio": "15",
        }
    )
    config = NexmarkConfig(-2, 5, 1_577_836_800_000, 4, 0.5, 9, False, 11, 12, 13, 14, 15)
    assert options == NexmarkOptions(config, "bid", 10, 3, True, 2)


@pytest.mark.parametrize("text", ["1577836800000", "2020-01-01", "2020-01-01T01:00:00+01:00"])
def test_base_time_is_milliseconds_or_iso(text: str) -> None:
    assert NexmarkOptions.parse({"baseTime": text}).config.base_time_ms == 1_577_836_800_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("view", "bids"),
        ("events", "-1"),
        ("rate", "0"),
        ("rate", "fast"),
        ("eventsPerBatch", "0"),
        ("throttle", "yes"),
        ("outOfOrderGroup", "953"),
        ("lateProbability", "1.5"),
        ("lateMaxMs", "0"),
        ("seed", "x"),
        ("baseTime", "yesterday"),
        ("partitions", "0"),
        ("extra", "1"),
        ("activePeople", "0"),
        ("hotBidderRatio", "none"),
    ],
)
def test_a_bad_value_is_named(name: str, text: str) -> None:
    with pytest.raises(QueryError, match=f"{name}.*{text}"):
        NexmarkOptions.parse({name: text})


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(QueryError, match="eventsperbach"):
        NexmarkOptions.parse({"eventsPerBach": "10"})


def test_a_reader_that_must_end_asks_for_events() -> None:
    assert NexmarkOptions.parse({"events": "0"}).need_events("spark.read") == 0
    with pytest.raises(QueryError, match=r"spark\.read"):
        NexmarkOptions.parse({}).need_events("spark.read")
