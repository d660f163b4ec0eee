"""The columns of the four views, as Flink's NEXMark names them."""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import QueryError

TIME = pa.timestamp("us", tz="UTC")

PERSON = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("emailAddress", pa.string()),
        ("creditCard", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("dateTime", TIME),
        ("extra", pa.string()),
    ]
)
AUCTION = pa.schema(
    [
        ("id", pa.int64()),
        ("itemName", pa.string()),
        ("description", pa.string()),
        ("initialBid", pa.int64()),
        ("reserve", pa.int64()),
        ("dateTime", TIME),
        ("expires", TIME),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
BID = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("dateTime", TIME),
        ("extra", pa.string()),
    ]
)
ALL = pa.schema(
    [
        ("event_type", pa.int32()),
        ("person", pa.struct(list(PERSON))),
        ("auction", pa.struct(list(AUCTION))),
        ("bid", pa.struct(list(BID))),
        ("dateTime", TIME),
    ]
)

VIEWS = ("all", "person", "auction", "bid")


def schema(view: str) -> pa.Schema:
    """The Arrow schema of `view`.

    >>> schema("bid").names
    ['auction', 'bidder', 'price', 'channel', 'url', 'dateTime', 'extra']
    """
    if view not in VIEWS:
        raise QueryError(f"nexmark: there is no view {view!r}", hint=f"use one of {', '.join(VIEWS)}")
    return (ALL, PERSON, AUCTION, BID)[VIEWS.index(view)]
