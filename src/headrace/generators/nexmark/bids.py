"""Bid events. The bidder's offset of 1000 is added once, as in Beam; Flink adds it twice."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.generators.nexmark.channels import HOT, ORDINARY, Channels
from headrace.generators.nexmark.config import (
    BID_BYTES,
    FIRST_AUCTION_ID,
    FIRST_PERSON_ID,
)
from headrace.generators.nexmark.draws import I64, Draws
from headrace.generators.nexmark.ids import any_auction, any_person, hot, last_auction, last_person
from headrace.generators.nexmark.schema import BID
from headrace.generators.nexmark.slices import Slice
from headrace.generators.nexmark.text import empty, padding

_HOT_AUCTION, _AUCTION, _HOT_BIDDER, _BIDDER, _PRICE, _HOT_CHANNEL, _CHANNEL = range(2, 9)
_FIXED_BYTES = 32


def bids(events: Slice, channels: Channels) -> pa.RecordBatch:
    """The rows of bid events."""
    draws = events.draws
    channel = pa.array(_channel(draws))
    columns = [
        pa.array(FIRST_AUCTION_ID + _auction(events)),
        pa.array(FIRST_PERSON_ID + _bidder(events)),
        pa.array(draws.price(_PRICE)),
        channels.names.take(channel),
        channels.urls.take(channel),
        events.timestamps(),
        padding(draws, _FIXED_BYTES, BID_BYTES) if events.config.extra else empty(len(events.ids)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BID)


def _auction(events: Slice) -> I64:
    """The auction of each bid; by default every second bid is on the hot auction."""
    last = last_auction(events.ids)
    config = events.config
    chosen = any_auction(last, events.draws, _AUCTION, config.in_flight_auctions)
    return np.where(events.draws.below(_HOT_AUCTION, config.hot_auction_ratio) > 0, hot(last), chosen)


def _bidder(events: Slice) -> I64:
    """The bidder of each bid; by default three in four bids are from the hot bidder, next to the hot
    seller.
    """
    last = last_person(events.ids)
    config = events.config
    chosen = any_person(last, events.draws, _BIDDER, config.active_people)
    return np.where(events.draws.below(_HOT_BIDDER, config.hot_bidder_ratio) > 0, hot(last) + 1, chosen)


def _channel(draws: Draws) -> I64:
    """The channel of each bid; every second bid uses a hot channel."""
    ordinary, well_known = draws.below(_CHANNEL, ORDINARY), ORDINARY + draws.below(_CHANNEL, len(HOT))
    return np.where(draws.below(_HOT_CHANNEL, 2) > 0, well_known, ordinary)
