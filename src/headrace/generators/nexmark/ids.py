"""Beam's formulas for event numbers, kinds, times and ids. All are elementwise over event ids."""

from __future__ import annotations

import numpy as np

from headrace.generators.nexmark.config import (
    AUCTIONS,
    EPOCH_EVENTS,
    HOT_BATCH,
    ID_LEAD,
    PERSONS,
    SHUFFLE_PRIME,
    NexmarkConfig,
)
from headrace.generators.nexmark.draws import I64, Draws

PERSON_KIND, AUCTION_KIND, BID_KIND = 0, 1, 2


def event_ids(start: int, stop: int, group: int) -> I64:
    """Ids of the events that are emitted as numbers `start` … `stop - 1`, in that order."""
    numbers = np.arange(start, stop, dtype=np.int64)
    if group == 1:
        return numbers
    return numbers // group * group + numbers % group * SHUFFLE_PRIME % group


def remainders(ids: I64) -> I64:
    """Position of each event in its cycle of 50."""
    return ids - ids // EPOCH_EVENTS * EPOCH_EVENTS


def kinds(ids: I64) -> I64:
    """0 for a person, 1 for an auction, 2 for a bid."""
    position = remainders(ids)
    return (position >= PERSONS).astype(np.int64) + (position >= PERSONS + AUCTIONS)


def time_ms(ids: I64, config: NexmarkConfig) -> I64:
    """Event time before lateness; equal to Beam's where the rate divides a million."""
    return config.base_time_ms + ids * 1000 // config.rate


def last_person(ids: I64) -> I64:
    """Number of the newest person at each event, from 0; a cycle has one person."""
    return ids // EPOCH_EVENTS * PERSONS + np.minimum(remainders(ids), PERSONS - 1)


def last_auction(ids: I64) -> I64:
    """Number of the newest auction at each event, from 0; -1 before the first."""
    newest = np.minimum(remainders(ids) - PERSONS, AUCTIONS - 1)
    return ids // EPOCH_EVENTS * AUCTIONS + np.maximum(newest, -1)


def any_person(last: I64, draws: Draws, draw: int, active_people: int) -> I64:
    """One of the active people, or of the next few that do not exist yet."""
    people = last + 1
    active = np.minimum(people, active_people)
    return people - active + draws.below(draw, active + ID_LEAD)


def any_auction(last: I64, draws: Draws, draw: int, in_flight: int) -> I64:
    """One of the auctions in flight, or of the next few that do not exist yet."""
    lowest = np.maximum(last - in_flight, 0)
    return lowest + draws.below(draw, last - lowest + 1 + ID_LEAD)


def hot(last: I64) -> I64:
    """The first number of the current hundred: the hot person or auction."""
    return last // HOT_BATCH * HOT_BATCH
