"""The queries of the crash rounds, as a user writes them: at least one for every store.

`testing/crash/model.py` has their expected results. Every output begins with its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import pyarrow as pa

import headrace as hr
from headrace.testing.crash.input import FILE_US, START_US
from headrace.testing.crash.work import auctions
from headrace.testing.crash.work.ledger import OUTPUT as LEDGER_OUTPUT
from headrace.testing.crash.work.ledger import Ledger

Kind = Literal[
    "window",  # RMW
    "running",
    "chained",
    "sliding",
    "session",  # sessions that fold
    "median",  # AAR
    "apply",
    "join",
    "range",
    "session_median",  # AUR
    "rocksdb",
    "memory",
    "late",  # windows that accept late rows and are emitted again
    "session_join",
    "moving",  # begins in memory, and migrates
    "processor",  # cells and reminders
    "q4",  # joins, top-N and changelogs, as NEXMark's queries use them
    "q9",
    "q18",
    "q20",
]
ALL_KINDS: tuple[Kind, ...] = get_args(Kind)
KINDS = tuple(kind for kind in ALL_KINDS if kind not in auctions.QUERIES)  # of rounds without a choice

SECOND_US = 1_000_000
DELAY_US, NARROW_US, WIDE_US = 10 * SECOND_US, 30 * SECOND_US, 60 * SECOND_US
SLIDE_US, GAP_US = 10 * SECOND_US, 4 * SECOND_US
OFFSET_US, LATENESS_US = 7 * SECOND_US, 20 * SECOND_US
CROSSING_US = 12 * SECOND_US  # a slide that does not divide the width: slices are finer than the slide

# Rows of later files are heavy: state exceeds its share of memory once its windows have begun to close.
_HEAVY_FROM_US, _HEAVY_BYTES = START_US + 3 * FILE_US, 20_000

_APPLIED = "user string, item long, start long, n long, spread double, notes string"
_APPLIED_FIELDS = [
    ("user", pa.string()),
    ("item", pa.int64()),
    ("start", pa.int64()),
    ("n", pa.int64()),
    ("spread", pa.float64()),
    ("notes", pa.string()),
]


def build(kind: Kind, rows: Any) -> Any:
    """The query over a streaming DataFrame of the input's schema."""
    if kind in auctions.QUERIES:
        return auctions.QUERIES[kind](rows)
    makers: dict[Kind, Callable[[Any], Any]] = {
        "window": lambda rows: _with_bounds(_totals(_stream(rows), hr.tumbling("30 seconds"))),
        "running": _running,
        "chained": _chained,
        "sliding": lambda rows: _with_bounds(
            _totals(_stream(rows), hr.sliding("30 seconds", "10 seconds"))
        ),
        "session": lambda rows: _with_bounds(_totals(_stream(rows), hr.session("4 seconds")), ends=True),
        "median": lambda rows: _with_bounds(_ranks(_stream(rows), hr.tumbling("30 seconds"))),
        "apply": lambda rows: _apply(rows, hr.tumbling("30 seconds")),
        "join": lambda rows: _join(rows, hr.tumbling("30 seconds")),
        "range": lambda rows: _with_bounds(_ranks(_stream(rows).store("range"), hr.tumbling("30 seconds"))),
        "session_median": lambda rows: _with_bounds(
            _ranks(_stream(rows), hr.session("4 seconds")), ends=True
        ),
        "rocksdb": lambda rows: _with_bounds(
            _totals(_stream(rows).store("rocksdb"), hr.tumbling("30 seconds"))
        ),
        "memory": lambda rows: _with_bounds(
            _totals(_stream(rows).store("memory"), hr.tumbling("30 seconds"))
        ),
        "late": _late,
        "session_join": lambda rows: _join(rows, hr.session("4 seconds"), ends=True),
        "processor": _processor,
        "moving": lambda rows: _apply(_heavy(rows), hr.sliding("30 seconds", "12 seconds")),
    }
    return makers[kind](rows)


def _stream(rows: Any, delay: str = "10 seconds") -> Any:
    return hr.stream(rows).withWatermark("ts", delay).name("narrow")


def _totals(rows: Any, window: Any) -> Any:
    return rows.groupBy("user", "item", window).agg(
        n=hr.count(), total=hr.sum("amount"), top=hr.max("bid"), least=hr.min("note")
    )


def _ranks(rows: Any, window: Any) -> Any:
    return rows.groupBy("user", "item", window).agg(
        n=hr.count(), middle=hr.median("amount"), bids=hr.collect_list("bid")
    )


def _with_bounds(results: Any, *, ends: bool = False) -> Any:
    """Results with the bounds of their windows as numbers; a session needs both."""
    rest = [name for name in results.columns if name not in ("user", "item", "window")]
    return results.selectExpr("user", "item", *_bounds(ends), *rest)


def _bounds(ends: bool) -> list[str]:
    return [
        f"unix_micros(window.{bound}) AS {bound}" for bound in (("start", "end") if ends else ("start",))
    ]


def _late(rows: Any) -> Any:
    """No delay, and windows that end before a file does: rows arrive after their windows were emitted."""
    window = hr.sliding("30 seconds", "10 seconds", offset="7 seconds", lateness="20 seconds")
    return _with_bounds(_totals(_stream(rows, "0 seconds"), window))


def _heavy(rows: Any) -> Any:
    heavy = f"CASE WHEN unix_micros(ts) < {_HEAVY_FROM_US} THEN 0 ELSE {_HEAVY_BYTES} END"
    return rows.selectExpr("*", f"repeat('x', {heavy}) AS ballast")


def _processor(rows: Any) -> Any:
    grouped = _stream(rows).groupBy("user", "item")
    return grouped.transformWithState(Ledger(), LEDGER_OUTPUT, "Append", "EventTime")


def _running(rows: Any) -> Any:
    grouped = hr.stream(rows).name("running").groupBy("user", "item")
    return grouped.agg(n=hr.count(), total=hr.sum("amount"), top=hr.max("bid"), least=hr.min("note"))


def _chained(rows: Any) -> Any:
    wide = (
        hr.stream(_totals(_stream(rows), hr.tumbling("30 seconds")))
        .name("wide")
        .groupBy("user", hr.tumbling("1 minute", on="window"))
        .agg(n=hr.sum("n"), total=hr.sum("total"), top=hr.max("top"), least=hr.min("least"))
    )
    return wide.selectExpr("user", "unix_micros(window.start) AS start", "n", "total", "top", "least")


def _join(rows: Any, window: Any, *, ends: bool = False) -> Any:
    """Pairs the positive bids of a window with the others; each side has its own watermark."""
    highs = rows.where("bid >= 0").selectExpr("user", "item", "ts", "bid AS high", "note")
    lows = rows.where("bid < 0").selectExpr("user", "item", "ts AS seen", "bid AS low", "amount")
    joined = _stream(highs).join(
        hr.stream(lows).withWatermark("seen", "10 seconds"),
        on=["user", "item"],
        window=window,
        how="full",
    )
    return joined.selectExpr("user", "item", *_bounds(ends), "high", "note", "low", "amount")


def _apply(rows: Any, window: Any) -> Any:
    groups = _stream(rows).groupBy("user", "item", window)
    return groups.applyInArrow(summary, _APPLIED)


def summary(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
    """A function of a user: the number of rows, the spread of their amounts, their notes in order."""
    amounts = [amount for amount in table["amount"].to_pylist() if amount is not None]
    user, item, (start, _) = key
    row = {
        "user": user.as_py(),
        "item": item.as_py(),
        "start": start.cast(pa.int64()).as_py(),
        "n": table.num_rows,
        "spread": max(amounts) - min(amounts) if amounts else None,
        "notes": "|".join(sorted(note for note in table["note"].to_pylist() if note is not None)),
    }
    return pa.Table.from_pylist([row], pa.schema(_APPLIED_FIELDS))
