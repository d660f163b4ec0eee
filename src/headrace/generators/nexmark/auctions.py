"""Auction events."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.generators.nexmark.config import (
    AUCTION_BYTES,
    AUCTIONS,
    CATEGORIES,
    EPOCH_EVENTS,
    FIRST_AUCTION_ID,
    FIRST_CATEGORY_ID,
    FIRST_PERSON_ID,
)
from headrace.generators.nexmark.draws import I64
from headrace.generators.nexmark.ids import any_person, hot, last_auction, last_person, time_ms
from headrace.generators.nexmark.schema import AUCTION
from headrace.generators.nexmark.slices import Slice, timestamps
from headrace.generators.nexmark.text import empty, padding, text

_HOT_SELLER, _SELLER, _CATEGORY, _INITIAL_BID, _LENGTH, _RESERVE = 2, 3, 4, 5, 6, 7
_NAME_LENGTH, _DESCRIPTION_LENGTH, _NAME, _DESCRIPTION = 8, 9, 10, 16
_FIXED_BYTES = 48


def auctions(events: Slice) -> pa.RecordBatch:
    """The rows of auction events."""
    draws = events.draws
    name = text(draws, _NAME_LENGTH, _NAME, 20)
    description = text(draws, _DESCRIPTION_LENGTH, _DESCRIPTION, 100)
    initial = draws.price(_INITIAL_BID)
    columns = [
        pa.array(FIRST_AUCTION_ID + last_auction(events.ids)),
        name,
        description,
        pa.array(initial),
        pa.array(initial + draws.price(_RESERVE)),
        events.timestamps(),
        timestamps(events.times_ms + _length_ms(events)),
        pa.array(FIRST_PERSON_ID + _seller(events)),
        pa.array(FIRST_CATEGORY_ID + draws.below(_CATEGORY, CATEGORIES)),
        _extra(events, name, description),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=AUCTION)


def _seller(events: Slice) -> I64:
    """The seller of each auction; by default three in four belong to the hot seller."""
    last = last_person(events.ids)
    config = events.config
    chosen = any_person(last, events.draws, _SELLER, config.active_people)
    return np.where(events.draws.below(_HOT_SELLER, config.hot_seller_ratio) > 0, hot(last), chosen)


def _length_ms(events: Slice) -> I64:
    """How long an auction runs: about as long as the auctions in flight took to appear, 100 by default."""
    flight = events.config.in_flight_auctions * EPOCH_EVENTS // AUCTIONS
    ahead = time_ms(events.ids + flight, events.config) - time_ms(events.ids, events.config)
    return 1 + events.draws.below(_LENGTH, np.maximum(2 * ahead, 1))


def _extra(events: Slice, name: pa.Array, description: pa.Array) -> pa.Array:
    if not events.config.extra:
        return empty(len(events.ids))
    written = pc.add(pc.binary_length(name), pc.binary_length(description)).to_numpy()
    return padding(events.draws, _FIXED_BYTES + written.astype(np.int64), AUCTION_BYTES)
