"""Protects state that outgrows its memory in a running query. The state of an unmarked function begins in
memory and moves to the layout that fits. Results stay exact, and a restart goes on from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame
from streaming_case import Case, Event, Rows

import headrace as hr
from headrace.spark.build.explain import explained

USERS = 150
PAD = "x" * 400


def user(number: int) -> str:
    return f"{number % USERS}-{PAD}"


def events(rows: int, first_s: int, seconds: int) -> list[Event]:
    return [(user(n), first_s + n * seconds // rows, float(n % 7)) for n in range(rows)]


def spread(case: Case, window: Any) -> DataFrame:
    def count(key: Any, table: pa.Table) -> pa.Table:
        total = pc.sum(table.column("amount")).as_py()
        return pa.table({"user": [key[0].as_py()], "rows": [table.num_rows], "total": [total]})

    rows = hr.stream(case.source()).withWatermark("ts", "0 seconds").name("spread")
    return rows.groupBy("user", window).applyInArrow(count, "user string, rows bigint, total double")


def wanted(fed: Iterable[Event], width: int, slide: int, until_s: int) -> list[tuple[Any, ...]]:
    """Every window that ends by `until_s`, worked out from the rows."""
    groups: dict[tuple[int, str | None], tuple[int, float]] = {}
    for name, second, amount in fed:
        start = second - second % slide
        while start + width > second:
            if start + width <= until_s:
                rows, total = groups.get((start, name), (0, 0.0))
                groups[start, name] = rows + 1, total + amount
            start -= slide
    return sorted((name, *values) for (_, name), values in groups.items())


CASES = [
    pytest.param("aar", hr.tumbling("40 seconds"), 40, 40, [(9000, 5)] * 8, marks=pytest.mark.long),
    pytest.param("range", hr.sliding("10 seconds", "4 seconds"), 10, 4, [(300, 20), *[(24000, 4)] * 6]),
]


@pytest.mark.parametrize(("store", "window", "width", "slide", "sizes"), CASES, ids=["aar", "range"])
def test_state_that_outgrows_memory_moves_and_goes_on_after_a_restart(
    case: Case, store: str, window: Any, width: int, slide: int, sizes: list[tuple[int, int]]
) -> None:
    fed: list[Event] = []
    second = 0
    for rows, seconds in sizes:
        batch = events(rows, second, seconds)
        case.feed(*batch)
        fed += batch
        second += seconds
    df = spread(case, window)
    assert "auto: the function has no mark of how it uses its rows" in explained(df)
    got: Rows = case.run(df)
    (seen,) = [line for line in explained(df).splitlines() if line.startswith("  seen")]
    assert seen.startswith(f"  seen    {store}: ")
    assert "counted:" in seen
    stores = [
        {manifest.store for manifest in case.state_at(n, "spread").manifests} for n in (0, len(sizes) - 1)
    ]
    assert stores == [{"memory"}, {store}]
    case.kill_hosts()
    last = (user(1), second + 100, 1.0)
    case.feed(last)
    got += case.run(spread(case, window))
    assert {manifest.store for manifest in case.state_at(len(sizes), "spread").manifests} == {store}
    assert sorted(row[1:] for row in got) == wanted([*fed, last], width, slide, last[1])
