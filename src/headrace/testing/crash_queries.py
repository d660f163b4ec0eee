"""The three queries of the crash rounds, as a user writes them. `crash_model` says what they must find."""

from __future__ import annotations

from typing import Any, Literal

import headrace as hr

Kind = Literal["window", "running", "chained"]
KINDS: tuple[Kind, ...] = ("window", "running", "chained")

DELAY_US, NARROW_US, WIDE_US = 10_000_000, 30_000_000, 60_000_000


def build(kind: Kind, rows: Any) -> Any:
    """The query over a streaming DataFrame of the input's schema; every output begins with its keys."""
    return {"window": _window, "running": _running, "chained": _chained}[kind](rows)


def _narrow(rows: Any) -> Any:
    return (
        hr.stream(rows)
        .withWatermark("ts", "10 seconds")
        .name("narrow")
        .groupBy("user", "item", hr.tumbling("30 seconds"))
        .agg(n=hr.count(), total=hr.sum("amount"), top=hr.max("bid"), least=hr.min("note"))
    )


def _window(rows: Any) -> Any:
    return _narrow(rows).selectExpr(
        "user", "item", "unix_micros(window.start) AS start", "n", "total", "top", "least"
    )


def _running(rows: Any) -> Any:
    grouped = hr.stream(rows).name("running").groupBy("user", "item")
    return grouped.agg(n=hr.count(), total=hr.sum("amount"), top=hr.max("bid"), least=hr.min("note"))


def _chained(rows: Any) -> Any:
    wide = (
        hr.stream(_narrow(rows))
        .name("wide")
        .groupBy("user", hr.tumbling("1 minute", on="window"))
        .agg(n=hr.sum("n"), total=hr.sum("total"), top=hr.max("top"), least=hr.min("least"))
    )
    return wide.selectExpr("user", "unix_micros(window.start) AS start", "n", "total", "top", "least")
