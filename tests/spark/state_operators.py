"""Queries of most kinds of operators, and what the table of their state must have. Without late rows.

Processors have tests of their own (`test_state_of_processors.py`): their changes are cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from streaming_case import Case, Event

import headrace as hr

Rows = list[tuple[Any, ...]]
Table = Counter[tuple[Any, ...]]
Session = tuple[Any, tuple[int, int], Rows]  # user, bounds, events


@dataclass(frozen=True)
class Operator:
    """A query whose operator `op` has state; `ids` columns identify a row, 0 where rows are kept."""

    build: Callable[[Case], DataFrame]
    columns: str
    ids: int
    rows: Callable[[list[Event]], Iterable[tuple[Any, ...]]]


# ── queries ──────────────────────────────────────────────────────────────────────────────────


def timed(case: Case, store: str = "auto") -> Any:
    return hr.stream(case.source()).withWatermark("ts", "1 hour").name("op").store(store)


def plain(case: Case) -> Any:
    return hr.stream(case.source()).name("op")


def pages(case: Case) -> Any:
    """The same events as another stream."""
    columns = ("user", "ts AS seen", "amount AS page", "ts + INTERVAL 10 SECONDS AS expires")
    return hr.stream(case.source().selectExpr(*columns)).withWatermark("seen", "1 hour")


def highest(case: Case) -> DataFrame:
    grouped = hr.stream(case.source()).name("highest").groupBy("user")
    return grouped.agg(most=hr.max("amount"), emit="changelog")


def whole_table(case: Case) -> DataFrame:
    names = case.spark.createDataFrame([("ann", "Ann"), ("joe", "Joe")], "user string, name string")
    return plain(case).lookup(names, on="user", how="left", path=f"{case.checkpoint}-names")


def amounts(key: Any, table: pa.Table) -> pa.Table:
    return pa.table({"n": [table.num_rows]})


def half_hours(times: pa.Array) -> tuple[pa.Array, pa.Array]:
    starts = pc.floor_temporal(times, 30, unit="minute")
    return starts, pc.add(starts, pa.scalar(1_800_000_000, pa.duration("us")))


# ── models ───────────────────────────────────────────────────────────────────────────────────


def by_user(events: list[Event]) -> dict[Any, list[Event]]:
    return {user: [e for e in events if e[0] == user] for user in dict.fromkeys(e[0] for e in events)}


def totals(events: list[Event]) -> Rows:
    return [(user, len(mine), sum(e[2] for e in mine)) for user, mine in by_user(events).items()]


def windows(events: list[Event], width: int = 10) -> Rows:
    groups = Counter((user, at // width * width) for user, at, _ in events)
    return [(user, (start, start + width), n) for (user, start), n in groups.items()]


def kept(events: list[Event]) -> Rows:
    return [(user, at, amount) for user, at, amount in events]


def times(events: list[Event]) -> Rows:
    return [(user, at) for user, at, _ in events]


def sessions(
    gap: Callable[[Event], int],
) -> Callable[[list[Event]], list[tuple[Any, tuple[int, int], Rows]]]:
    """Sessions of each user: spans that touch are one."""

    def of(events: list[Event]) -> list[tuple[Any, tuple[int, int], Rows]]:
        made: list[tuple[Any, tuple[int, int], Rows]] = []
        for user, mine in by_user(events).items():
            for event in sorted(mine, key=lambda one: one[1]):
                start, end = event[1], event[1] + gap(event)
                if made and made[-1][0] == user and made[-1][1][1] >= start:
                    _, (first, last), rows = made.pop()
                    made.append((user, (first, max(last, end)), [*rows, event]))
                else:
                    made.append((user, (start, end), [event]))
        return made

    return of


FIXED, OWN = sessions(lambda event: 5), sessions(lambda event: 10 if event[2] > 1 else 5)


def both_sides(events: list[Event]) -> Rows:
    left = [(user, at, "left", amount, None) for user, at, amount in events]
    return left + [(user, at, "right", None, amount) for user, at, amount in events]


def per_highest(events: list[Event]) -> list[tuple[float, Any]]:
    return [(max(e[2] for e in mine), user) for user, mine in by_user(events).items()]


def best(events: list[Event]) -> Rows:
    return [
        (user, amount)
        for user, mine in by_user(events).items()
        for amount in sorted((e[2] for e in mine), reverse=True)[:2]
    ]


TUMBLING, SLIDING = hr.tumbling("10 seconds"), hr.sliding("20 seconds", "10 seconds")
KEPT = "user, event_time, amount"
SIDES = "user, event_time, side, amount, page"

OPERATORS: dict[str, Operator] = {
    "running": Operator(
        lambda c: plain(c).groupBy("user").agg(n=hr.count(), total=hr.sum("amount")),
        "user, n, total",
        1,
        totals,
    ),
    "memory": Operator(
        lambda c: plain(c).store("memory").groupBy("user").agg(n=hr.count()),
        "user, n",
        1,
        lambda events: [row[:2] for row in totals(events)],
    ),
    "rocksdb": Operator(
        lambda c: plain(c).store("rocksdb").groupBy("user").agg(n=hr.count()),
        "user, n",
        1,
        lambda events: [row[:2] for row in totals(events)],
    ),
    "first and last": Operator(
        lambda c: timed(c).groupBy("user").agg(oldest=hr.first("amount"), newest=hr.last("amount")),
        "user, oldest, newest",
        1,
        lambda events: [
            (user, min(mine, key=lambda e: e[1])[2], max(mine, key=lambda e: e[1])[2])
            for user, mine in by_user(events).items()
        ],
    ),
    "tumbling": Operator(
        lambda c: timed(c).groupBy("user", TUMBLING).agg(n=hr.count()), "user, window, n", 2, windows
    ),
    "tumbling, changes": Operator(
        lambda c: timed(c).groupBy("user", TUMBLING).agg(n=hr.count(), emit="changes"),
        "user, window, n",
        2,
        windows,
    ),
    "sliding": Operator(
        lambda c: timed(c).groupBy("user", SLIDING).agg(n=hr.count()), "user, slice, n", 2, windows
    ),
    "session": Operator(
        lambda c: timed(c).groupBy("user", hr.session("5 seconds")).agg(n=hr.count()),
        "user, window, n",
        2,
        lambda events: [(user, bounds, len(rows)) for user, bounds, rows in FIXED(events)],
    ),
    "own gaps": Operator(
        lambda c: (
            timed(c)
            .groupBy("user", hr.session(F.when(F.col("amount") > 1, "10 seconds").otherwise("5 seconds")))
            .agg(n=hr.count())
        ),
        "user, window, n",
        2,
        lambda events: [(user, bounds, len(rows)) for user, bounds, rows in OWN(events)],
    ),
    "aar": Operator(
        lambda c: timed(c, "aar").groupBy("user", TUMBLING).agg(m=hr.median("amount")), KEPT, 0, kept
    ),
    "range": Operator(
        lambda c: timed(c, "range").groupBy("user", SLIDING).agg(m=hr.median("amount")), KEPT, 0, kept
    ),
    "aur": Operator(
        lambda c: timed(c).groupBy("user", hr.session("5 seconds")).agg(m=hr.median("amount")),
        "user, window, event_time, amount",
        0,
        lambda events: [
            (user, bounds, *event[1:]) for user, bounds, rows in FIXED(events) for event in rows
        ],
    ),
    "auto": Operator(
        lambda c: timed(c).groupBy("user", TUMBLING).applyInArrow(amounts, "n long"), KEPT, 0, kept
    ),
    "by count": Operator(
        lambda c: timed(c).groupBy("user", hr.rows(2)).agg(n=hr.count()), "user, event_time", 0, times
    ),
    "to a marker": Operator(
        lambda c: timed(c).groupBy("user", hr.ended_by(F.col("amount") == 4)).agg(n=hr.count()),
        "user, event_time",
        0,
        times,
    ),
    "by a function": Operator(
        lambda c: timed(c).groupBy("user", hr.custom_window(half_hours)).agg(n=hr.count()),
        "user, window, n",
        2,
        lambda events: windows(events, 1800),
    ),
    "distinct": Operator(
        lambda c: plain(c).groupBy("user").agg(seen=hr.count_distinct("amount"), n=hr.count()),
        "user, seen, n",
        1,
        lambda events: [(u, len({e[2] for e in mine}), len(mine)) for u, mine in by_user(events).items()],
    ),
    "estimated": Operator(
        lambda c: plain(c).groupBy("user").agg(seen=hr.approx_count_distinct("amount")),
        "user, seen",
        1,
        lambda events: [(user, len({e[2] for e in mine})) for user, mine in by_user(events).items()],
    ),
    "groups of a changelog": Operator(
        lambda c: (
            hr.stream(highest(c))
            .name("op")
            .groupBy("most")
            .agg(users=hr.count(), total=hr.sum("most"), mean=hr.avg("most"), emit="changelog")
        ),
        "most, users, total, mean",
        1,
        lambda events: [
            (most, n, n * most, most)
            for most, n in Counter(most for most, _ in per_highest(events)).items()
        ],
    ),
    "top": Operator(lambda c: plain(c).groupBy("user").top(2, by="amount"), "user, amount", 0, best),
    "top of a changelog": Operator(
        lambda c: hr.stream(highest(c)).name("op").groupBy("most").top(1, by="user"),
        "most, user",
        0,
        per_highest,
    ),
    "dedup": Operator(
        lambda c: plain(c).dropDuplicates(["user"]),
        "user",
        1,
        lambda events: [(u,) for u in by_user(events)],
    ),
    "dedup, the last row": Operator(
        lambda c: timed(c).dropDuplicates(["user"], keep="last"),
        "user, event_time",
        1,
        lambda events: [(user, max(e[1] for e in mine)) for user, mine in by_user(events).items()],
    ),
    "windowed join": Operator(
        lambda c: timed(c).join(pages(c), on="user", window=TUMBLING), SIDES, 0, both_sides
    ),
    "interval join": Operator(
        lambda c: timed(c).join(pages(c), on="user", between=("-9 seconds", "9 seconds"), how="left"),
        SIDES,
        0,
        both_sides,
    ),
    "join by key": Operator(
        lambda c: plain(c).join(hr.stream(c.source().selectExpr("user", "amount AS page")), on="user"),
        "user, side, amount, page",
        0,
        lambda events: [(user, *rest) for user, _, *rest in both_sides(events)],
    ),
    "retain": Operator(
        lambda c: timed(c).join(pages(c), on="user", retain="1 day", how="full"), SIDES, 0, both_sides
    ),
    "until": Operator(lambda c: timed(c).join(pages(c), on="user", until="expires"), SIDES, 0, both_sides),
    "history": Operator(
        lambda c: timed(c).history(pages(c), on="user", within="1 hour"),
        SIDES,
        0,
        lambda events: [row for row in both_sides(events) if row[2] == "right"],
    ),
    "settled history": Operator(
        lambda c: timed(c).history(pages(c), on="user", within="1 hour", settled=True), SIDES, 0, both_sides
    ),
    "lookup": Operator(
        whole_table,
        "user, side, name",
        0,
        lambda events: [("ann", "right", "Ann"), ("joe", "right", "Joe")],
    ),
}
