"""Every query by its name: its function, its streams, and what identifies a row of its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Literal

from headrace.errors import QueryError, did_you_mean
from headrace.nexmark import joins, stateless, updating, windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.nexmark.streams import Streams

Shape = Literal["rows", "changes", "changelog"]
STREAMS = ("auctions", "bids", "persons", "plain_bids", "side_table", "side_path")


@dataclass(frozen=True)
class Query:
    """One query; `keys` identify a row where later rows replace earlier ones."""

    name: str
    build: Callable[..., DataFrame]
    keys: tuple[str, ...] = ()
    shape: Shape = "rows"

    @property
    def title(self) -> str:
        return (self.build.__doc__ or "").strip().splitlines()[0]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(name for name in signature(self.build).parameters if name in STREAMS)

    @property
    def only_bids(self) -> bool:
        """Whether the query reads bids only."""
        return not {"auctions", "persons"} & set(self.inputs)

    def over(self, streams: Streams) -> DataFrame:
        """The query over the streams of a source."""
        return self.build(**{name: getattr(streams, name) for name in self.inputs})


def _changing(name: str, build: Callable[..., DataFrame], *keys: str) -> Query:
    return Query(name, build, keys, "changes")


QUERIES = {
    query.name: query
    for query in (
        Query("q0", stateless.q0),
        Query("q1", stateless.q1),
        Query("q2", stateless.q2),
        Query("q3", joins.q3),
        _changing("q4", updating.q4, "category"),
        Query("q5", windows.q5),
        Query("q6", updating.q6, ("seller", "frame"), "changelog"),
        _changing("q6_closed", updating.q6_closed, "seller"),
        Query("q7", windows.q7),
        Query("q8", joins.q8),
        _changing("q9", updating.q9, "auction"),
        Query("q11", windows.q11),
        _changing("q12", windows.q12, "bidder", "starttime"),
        Query("q12_event_time", windows.q12_event_time),
        Query("q13", joins.q13),
        Query("q14", stateless.q14),
        _changing("q15", updating.q15, "day"),
        _changing("q16", updating.q16, "channel", "day"),
        _changing("q17", updating.q17, "auction", "day"),
        _changing("q18", updating.q18, "bidder", "auction"),
        _changing("q19", updating.q19, "auction", "rank_number"),
        Query("q20", joins.q20),
        Query("q21", stateless.q21),
        Query("q22", stateless.q22),
        Query("q23", joins.q23),
    )
}


def query_of(name: str) -> Query:
    """The query of a name; raises where there is none."""
    if name not in QUERIES:
        meant = did_you_mean(name, list(QUERIES), after=" ")
        raise QueryError(f"NEXMark has no query {name}", hint=f"{meant}list them: headrace nexmark --list")
    return QUERIES[name]
