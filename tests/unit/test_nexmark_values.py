"""Protects the distribution of NEXMark's values: prices, skew, references, strings and padding."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.generators.nexmark import NexmarkConfig, NexmarkGenerator

EVENTS = 200_000
GENERATOR = NexmarkGenerator(NexmarkConfig(seed=11))


@pytest.fixture(scope="module")
def bids() -> pa.RecordBatch:
    return GENERATOR.batch("bid", 0, EVENTS)


@pytest.fixture(scope="module")
def auctions() -> pa.RecordBatch:
    return GENERATOR.batch("auction", 0, EVENTS)


@pytest.fixture(scope="module")
def persons() -> pa.RecordBatch:
    return GENERATOR.batch("person", 0, EVENTS)


@pytest.fixture(scope="module")
def bid_ids() -> np.ndarray:
    events = np.arange(EVENTS)
    return events[events % 50 >= 4]


def lengths(column: pa.Array) -> np.ndarray:
    return pc.binary_length(column).to_numpy()


def test_prices_are_log_uniform(bids: pa.RecordBatch) -> None:
    prices = bids.column("price").to_numpy()
    assert 100 <= prices.min() < 105
    assert 9.9e7 < prices.max() <= 10**8
    shares = np.histogram(np.log10(prices / 100), bins=12, range=(0, 6))[0] / len(prices)
    assert np.abs(shares - 1 / 12).max() < 0.004


def test_half_the_bids_are_on_the_hot_auction_everywhere(bids: pa.RecordBatch, bid_ids: np.ndarray) -> None:
    hot = bids.column("auction").to_numpy() == 1000 + (bid_ids // 50 * 3 + 2) // 100 * 100
    assert 0.5 < hot.mean() < 0.515
    blocks = hot[: len(hot) // 1000 * 1000].reshape(-1, 1000).mean(axis=1)
    assert 0.42 < blocks.min() < blocks.max() < 0.60


def test_three_in_four_bids_come_from_the_hot_bidder(bids: pa.RecordBatch, bid_ids: np.ndarray) -> None:
    hot = bids.column("bidder").to_numpy() == 1000 + bid_ids // 50 // 100 * 100 + 1
    assert 0.745 < hot.mean() < 0.76
    again = (hot[1:] & hot[:-1]).mean()
    assert abs(again - hot.mean() ** 2) < 0.01


def test_three_in_four_auctions_belong_to_the_hot_seller(auctions: pa.RecordBatch) -> None:
    numbers = np.arange(auctions.num_rows)
    hot = auctions.column("seller").to_numpy() == 1000 + numbers // 3 // 100 * 100
    assert 0.735 < hot.mean() < 0.775


def test_bids_refer_to_auctions_in_flight_or_just_ahead(bids: pa.RecordBatch, bid_ids: np.ndarray) -> None:
    ahead = bids.column("auction").to_numpy() - 1000 - (bid_ids // 50 * 3 + 2)
    assert ahead.min() == -100
    assert ahead.max() == 10
    bidder = bids.column("bidder").to_numpy() - 1000 - bid_ids // 50
    assert bidder.min() >= -1000
    assert bidder.max() == 10
    assert bids.column("auction").to_numpy().min() >= 1000
    assert bids.column("bidder").to_numpy().min() >= 1000


def test_reserve_is_the_first_bid_plus_a_price(auctions: pa.RecordBatch) -> None:
    added = auctions.column("reserve").to_numpy() - auctions.column("initialBid").to_numpy()
    assert 100 <= added.min() < 110
    assert added.max() <= 10**8
    assert set(auctions.column("category").to_pylist()) == {10, 11, 12, 13, 14}


def test_half_the_channels_are_hot_and_keep_one_url(bids: pa.RecordBatch) -> None:
    channels, urls = bids.column("channel").to_pylist(), bids.column("url").to_pylist()
    hot = [channel in ("Google", "Facebook", "Baidu", "Apple") for channel in channels]
    assert 0.49 < np.mean(hot) < 0.51
    by_channel = dict(zip(channels, urls, strict=True))
    assert all(by_channel[channel] == url for channel, url in zip(channels, urls, strict=True))
    assert {name for name in by_channel if not name.startswith("channel-")} == {
        "Google",
        "Facebook",
        "Baidu",
        "Apple",
    }
    assert max(int(name[8:]) for name in by_channel if name.startswith("channel-")) < 10_000


def test_urls_have_their_shape_and_channel_id(bids: pa.RecordBatch) -> None:
    shape = re.compile(r"https://www\.nexmark\.com(/[a-z_]{3,4}){3}/item\.htm\?query=1(&channel_id=(\d+))?")
    urls = dict(zip(bids.column("channel").to_pylist(), bids.column("url").to_pylist(), strict=True))
    matches = {name: shape.fullmatch(url) for name, url in urls.items()}
    assert all(matches.values())
    ids = {name: match[3] for name, match in matches.items() if match and name.startswith("channel-")}
    assert 0.88 < np.mean([number is not None for number in ids.values()]) < 0.92
    for name, number in ids.items():
        if number is not None:
            flipped = int(f"{int(name[8:]):032b}"[::-1], 2)
            assert int(number) == min(flipped, 2**32 - flipped)


def test_persons_have_their_fields(persons: pa.RecordBatch) -> None:
    rows = persons.to_pylist()
    assert all(re.fullmatch(r"\d{4}( \d{4}){3}", row["creditCard"]) for row in rows)
    assert all(re.fullmatch(r"[a-z ]{0,6}@[a-z ]{0,4}\.com", row["emailAddress"]) for row in rows)
    assert len({row["name"] for row in rows}) == 99
    assert len({row["city"] for row in rows}) == 10
    assert {row["state"] for row in rows} == {"AZ", "CA", "ID", "OR", "WA", "WY"}


def test_text_has_one_special_in_thirteen_and_no_outer_spaces(auctions: pa.RecordBatch) -> None:
    descriptions = auctions.column("description")
    text = "".join(descriptions.to_pylist())
    assert set(text) == set("abcdefghijklmnopqrstuvwxyz ")
    assert 0.070 < text.count(" ") / len(text) < 0.078
    assert 0.0345 < text.count("q") / len(text) < 0.0370
    assert lengths(descriptions).max() == 99
    assert lengths(auctions.column("itemName")).max() == 19
    assert descriptions.equals(pc.ascii_trim(descriptions, " "))


def test_padding_brings_rows_to_their_average(
    persons: pa.RecordBatch, auctions: pa.RecordBatch, bids: pa.RecordBatch
) -> None:
    person = 8 + sum(lengths(persons.column(at)) for at in (1, 2, 3, 4, 5, 7))
    auction = 48 + sum(lengths(auctions.column(at)) for at in (1, 2, 9))
    bid = lengths(bids.column("extra"))
    assert 198 < person.mean() < 201
    assert 496 < auction.mean() < 503
    assert (bid.min(), bid.max()) == (54, 81)
    assert re.fullmatch("[a-z]+", "".join(bids.column("extra").slice(0, 1000).to_pylist()))


def test_padding_can_be_left_out() -> None:
    plain = NexmarkGenerator(NexmarkConfig(seed=11, extra=False))
    for view in ("person", "auction", "bid"):
        rows, padded = plain.batch(view, 0, 1000), GENERATOR.batch(view, 0, 1000)
        assert set(rows.column("extra").to_pylist()) == {""}
        assert rows.drop_columns(["extra"]).equals(padded.drop_columns(["extra"]))


def test_letters_of_neighbouring_events_are_unrelated(bids: pa.RecordBatch) -> None:
    extras = bids.column("extra").slice(0, 20_000).to_pylist()
    same = np.mean([one[:8] == other[:8] for one, other in pairwise(extras)])
    assert same == 0
    first = np.bincount([ord(extra[0]) - 97 for extra in extras], minlength=26) / len(extras)
    assert np.abs(first - 1 / 26).max() < 0.006


def test_more_people_and_auctions_without_hot_ones_spread_the_bids() -> None:
    crowd = NexmarkConfig(
        active_people=50_000, in_flight_auctions=50_000, hot_bidder_ratio=1, hot_auction_ratio=1
    )
    bids = NexmarkGenerator(crowd).batch("bid", 5_000_000, 5_020_000)
    for column in ("bidder", "auction"):
        assert len(set(bids[column].to_pylist())) > 15_000
