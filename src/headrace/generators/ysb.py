"""Events of the Yahoo streaming benchmark: ads of campaigns that are viewed, clicked and bought.

Values follow the benchmark's generator: uniform choices, 100 campaigns of 10 ads, identifiers as UUIDs,
event times as text in milliseconds. With skew, times differ by up to 50 ms, and one event in 100,000 is
late by up to a minute. An event is one JSON text, as in the benchmark's Kafka topic.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
CAMPAIGNS, ADS_PER_CAMPAIGN, USERS, PAGES = 100, 10, 100, 100
START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Ads:
    """The campaign of each ad, and the identifiers of users and pages."""

    campaigns: tuple[str, ...]  # of each ad, by the ad's number
    ads: tuple[str, ...]
    users: tuple[str, ...]
    pages: tuple[str, ...]


def drawn_ads(seed: int) -> Ads:
    """Identifiers that depend on the seed only."""
    random = np.random.default_rng(seed)

    def identifiers(count: int) -> tuple[str, ...]:
        return tuple(str(uuid.UUID(bytes=random.bytes(16), version=4)) for _ in range(count))

    campaigns = np.repeat(np.array(identifiers(CAMPAIGNS)), ADS_PER_CAMPAIGN)
    names = tuple(str(one) for one in campaigns)
    return Ads(names, identifiers(len(names)), identifiers(USERS), identifiers(PAGES))


def drawn_events(ads: Ads, first: int, count: int, per_s: float, seed: int, skew: bool = True) -> pa.Array:
    """Events `first` to `first + count` of a stream with `per_s` events per second, as JSON texts."""
    random = np.random.default_rng((seed, first))
    times = START_MS + ((first + np.arange(count)) * (1000.0 / per_s)).astype(np.int64)
    if skew:
        times += 50 - random.integers(0, 100, count)
        is_late = random.random(count) < 1e-5
        times -= np.where(is_late, random.integers(0, 60_000, count), 0)

    def chosen(values: tuple[str, ...]) -> pa.Array:
        return pa.array(values).take(pa.array(random.integers(0, len(values), count)))

    fields = {
        "user_id": chosen(ads.users),
        "page_id": chosen(ads.pages),
        "ad_id": chosen(ads.ads),
        "ad_type": chosen(AD_TYPES),
        "event_type": chosen(EVENT_TYPES),
        "event_time": pa.array(times).cast(pa.string()),
    }
    parts: list[pa.Array | str] = []
    for name, values in fields.items():
        parts += [f'{"," if parts else "{"}"{name}":"', values, '"']
    return pc.binary_join_element_wise(*parts, ',"ip_address":"1.2.3.4"}', "")
