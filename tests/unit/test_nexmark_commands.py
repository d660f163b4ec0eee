"""Protects `headrace nexmark` and `headrace bench nexmark`: names, numbers and figures, without Spark."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from headrace.bench.common.follow import Ran
from headrace.bench.nexmark import run as bench
from headrace.bench.nexmark.floor import floor_of
from headrace.bench.nexmark.input import ALL, FULL, QUICK, SELLERS, Scale, write
from headrace.cli.nexmark import list_queries, number_of
from headrace.errors import QueryError, SettingError
from headrace.nexmark.registry import QUERIES, query_of


def test_every_query_is_listed() -> None:
    """q10 writes files; all others of NEXMark's 24 are there."""
    printed = io.StringIO()
    list_queries(Console(file=printed, width=160))
    listed = {line.split()[0] for line in printed.getvalue().splitlines()[1:]}
    assert listed == set(QUERIES)
    assert {f"q{number}" for number in range(24) if number != 10} <= listed
    assert all(query.title.endswith(".") for query in QUERIES.values())


@pytest.mark.parametrize(
    ("text", "number"), [("5M", 5_000_000), ("200k", 200_000), ("1.5M", 1_500_000), ("42", 42)]
)
def test_numbers_of_events(text: str, number: int) -> None:
    assert number_of(text) == number


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(SettingError, match="'many' is not a number of events"):
        number_of("many")
    with pytest.raises(QueryError, match="did you mean q12_event_time"):
        query_of("q12_event")
    with pytest.raises(QueryError, match="no query is called q99"):
        bench.run(only=["q99"])


def test_what_each_side_measures() -> None:
    names = ["q0", "q3", "q4", "q12", "q13", "q23", "dedup"]
    assert bench.measured("headrace", names) == names
    assert bench.measured("spark", names) == ["q3", "dedup"]
    floors = {name: floor_of(name) for name in names}
    assert floors["q12"] == floors["q13"] == "bids"
    assert (floors["q4"], floors["q3"], floors["dedup"]) == ("auctions+bids", "q3", "dedup")
    streams = [bench.stream_of(floors[name]) for name in ("q3", "q4", "q23", "dedup")]
    assert streams == [SELLERS, ALL, ALL, ALL]
    assert bench.measured("floor", names) == list(dict.fromkeys(floors.values()))


def test_figures_and_ratios() -> None:
    scale = Scale(batches=3, events=1000, rate=100, skipped=1, spark_batches=2)
    ran = Ran(None, {0: 9, 1: 2000, 2: 2000}, {0: 5000.0, 1: 400.0, 2: 600.0})
    assert bench.rows_per_s(ran, scale, 3, ALL) == 2000  # a stream that is read twice counts once
    assert bench.rows_per_s(ran, scale, 3, SELLERS) == 1920
    outcomes = {
        ("headrace", "q3"): 8000.0,
        ("spark", "q3"): 1000.0,
        ("floor", "q3"): 9000.0,
    }
    line = json.loads(bench.summarize(scale, ["q3", "q5"], outcomes, Console(file=io.StringIO())))
    assert line["ratios"] == {"q3_vs_spark": 8.0, "floor_q3_vs_spark": 9.0}
    assert line["failed"] == ["headrace.q5", "floor.bids"]


@pytest.mark.parametrize("scale", [QUICK, FULL], ids=["quick", "full"])
def test_windows_close_while_it_is_measured(scale: Scale) -> None:
    """A window of 10 s and a delay of 4 s."""
    assert (scale.batches - scale.skipped) * scale.events / scale.rate > 14
    assert scale.spark_batches > scale.skipped


def test_files_are_the_batches(tmp_path: Path) -> None:
    write(Scale(batches=2, events=100, rate=100, skipped=0, spark_batches=2), tmp_path / "in")
    for stream, rows in ((ALL, 200), (SELLERS, 192)):
        files = sorted((tmp_path / "in" / stream).iterdir(), key=lambda path: path.stat().st_mtime)
        assert [path.name[:5] for path in files] == ["00000", "00000", "00001", "00001"]
        assert sum(pq.read_table(path).num_rows for path in files) == rows
