"""NEXMark's q4, q9, q18 and q20 over the rows of crash rounds, and their expected results.

A row with a bid from zero on is a bid. The others are auctions of the same user and item, which are open
for some seconds. The model is plain loops over plain rows, batch by batch. It shares nothing with the
engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.functions import col

import headrace as hr
from headrace.testing.crash.input import Row

SECOND_US = 1_000_000
OPEN_US = 5 * SECOND_US  # an auction is open for so long, and as long again for every item above the least
DELAY_US = 10 * SECOND_US
Values = tuple[Any, ...]
Output = Counter[Values]
Batches = Iterable[list[Row]]


# ── queries ──────────────────────────────────────────────────────────────────────────────────


def q18(rows: Any) -> Any:
    latest = hr.stream(rows).name("latest").groupBy("user", "item").top(1, by=["ts", "bid"])
    return latest.selectExpr("user", "item", "unix_micros(ts) AS ts", "amount", "bid", "note")


def q20(rows: Any) -> Any:
    bids = rows.where("bid >= 0").select("user", "item", col("bid").alias("high"), "note")
    items = rows.where("bid < 0").select("user", "item", col("bid").alias("low"), "amount")
    return hr.stream(bids).name("pairs").join(hr.stream(items), on=["user", "item"])


def q9(rows: Any) -> Any:
    best = hr.stream(_valid(rows)).name("best").groupBy("low").top(1, by=["high", col("ts").asc()])
    return best.selectExpr("user", "item", "low", "high", "unix_micros(ts) AS ts")


def q4(rows: Any) -> Any:
    valid = hr.stream(_valid(rows)).name("highest")
    highest = valid.groupBy("item", "low").agg(high=hr.max("price"), emit="changelog")
    return hr.stream(highest).name("averages").groupBy("item").agg(n=hr.count(), total=hr.sum("high"))


def _valid(rows: Any) -> Any:
    """Bids while their auction is open; each side has its own watermark."""
    bids = rows.where("bid >= 0").selectExpr("user", "item", "ts", "bid AS high", "bid DIV 1024 AS price")
    ends = f"timestamp_micros(unix_micros(ts) + (item + 4) * {OPEN_US})"
    items = rows.where("bid < 0").selectExpr(
        "user", "item", "ts AS opened", "bid AS low", f"{ends} AS ends"
    )
    left = hr.stream(bids).withWatermark("ts", "10 seconds").name("valid")
    right = hr.stream(items).withWatermark("opened", "10 seconds")
    return left.join(right, on=["user", "item"], until="ends")


QUERIES: dict[str, Callable[[Any], Any]] = {"q4": q4, "q9": q9, "q18": q18, "q20": q20}


# ── expected results ─────────────────────────────────────────────────────────────────────────


def expected_output(kind: str, batches: Batches) -> list[Output]:
    """The output of each batch."""
    if kind == "q18":
        return _changed(batches, _latest)
    if kind == "q20":
        return _pairs(batches)
    return _changed(_timely(batches), _best if kind == "q9" else _averages)


def _changed(batches: Batches, result: Callable[[list[Row]], dict[Any, Values]]) -> list[Output]:
    """The rows of a result that each batch adds or changes."""
    seen: list[Row] = []
    before: dict[Any, Values] = {}
    outputs = []
    for rows in batches:
        seen = seen + rows
        after = result(seen)
        outputs.append(Counter(row for key, row in after.items() if before.get(key) != row))
        before = after
    return outputs


def _latest(rows: list[Row]) -> dict[Any, Values]:
    newest: dict[Any, Row] = {}
    for row in rows:
        known = newest.get((row.user, row.item))
        if known is None or (row.ts_us, row.bid) > (known.ts_us, known.bid):
            newest[row.user, row.item] = row
    return {
        key: (row.user, row.item, row.ts_us, row.amount, row.bid, row.note) for key, row in newest.items()
    }


def _pairs(batches: Batches) -> list[Output]:
    seen: list[Row] = []
    outputs = []
    for rows in batches:
        new = Counter(pair for pair in _matches(seen + rows, len(seen)))
        outputs.append(new)
        seen = seen + rows
    return outputs


def _matches(rows: list[Row], first_new: int) -> Iterable[Values]:
    """Bids with auctions of equal keys, of which one is new."""
    for at, bid in enumerate(rows):
        for other, item in enumerate(rows):
            is_pair = bid.bid >= 0 > item.bid and bid.user is not None
            if is_pair and (bid.user, bid.item) == (item.user, item.item) and max(at, other) >= first_new:
                yield bid.user, bid.item, bid.bid, bid.note, item.bid, item.amount


def _timely(batches: Batches) -> list[list[Row]]:
    """The rows that are later than the watermark of the batch before: that of the slower stream."""
    newest: list[int | None] = [None, None]
    timely = []
    for rows in batches:
        known = [at for at in newest if at is not None]
        before = min(known) - DELAY_US if len(known) == 2 else None
        timely.append([row for row in rows if before is None or row.ts_us > before])
        for row in rows:
            side, at = int(row.bid < 0), row.ts_us // 1000 * 1000
            newest[side] = at if newest[side] is None else max(newest[side] or at, at)
    return timely


def _valid_pairs(rows: list[Row]) -> Iterable[tuple[Row, Row]]:
    by_key: dict[Any, list[Row]] = {}
    for row in rows:
        if row.bid < 0 and row.user is not None:
            by_key.setdefault((row.user, row.item), []).append(row)
    for bid in rows:
        for item in by_key.get((bid.user, bid.item), ()) if bid.bid >= 0 else ():
            if item.ts_us <= bid.ts_us <= item.ts_us + (item.item + 4) * OPEN_US:
                yield bid, item


def _best(rows: list[Row]) -> dict[Any, Values]:
    best: dict[Any, Values] = {}
    for bid, item in _valid_pairs(rows):
        known = best.get(item.bid)
        if known is None or (bid.bid, -bid.ts_us) > (known[3], -known[4]):
            best[item.bid] = (bid.user, bid.item, item.bid, bid.bid, bid.ts_us)
    return best


def _averages(rows: list[Row]) -> dict[Any, Values]:
    highest: dict[tuple[int, int], int] = {}
    for bid, item in _valid_pairs(rows):
        key, price = (item.item, item.bid), bid.bid // 1024
        highest[key] = max(price, highest.get(key, price))
    result: dict[Any, Values] = {}
    for (item_, _), price in highest.items():
        _, n, total = result.get(item_, (item_, 0, 0))
        result[item_] = (item_, n + 1, total + price)
    return result
