"""Protects the examples in docstrings of the public API: each one runs and prints what it shows.

Names that an example may use beside its own imports: `spark`, `F`, `events` (a streaming DataFrame),
`query` and `checkpoint` (of a query that counted them), and `folder` for its files.
"""

from __future__ import annotations

import doctest
import inspect
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr
import headrace.inspect
from headrace.inspect.changes import Changes
from headrace.monitor.picture.run import Progress
from headrace.spark.api.joining import Joining
from headrace.spark.api.processing import Processing
from headrace.spark.language.aggregates import Aggregate
from headrace.spark.sources import cluster, nexmark, road

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
VISITS = [
    [("ann", 0, 1.0, "home"), ("bob", 1, 2.0, "home"), ("ann", 2, 4.0, "cart")],
    [("ann", 10, 8.0, "pay"), ("eve", 11, 16.0, "home")],
]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
OBJECTS: dict[str, Any] = {
    "headrace": hr,
    **{f"headrace.{name}": getattr(hr, name) for name in hr.__all__},
    **{f"headrace.inspect.{name}": getattr(headrace.inspect, name) for name in headrace.inspect.__all__},
    **{one.__name__: one for one in (Aggregate, Changes, Progress)},
    "headrace.Joining": Joining,
    "headrace.Processing": Processing,
    **{f"{source.__name__}.register": source.register for source in (cluster, nexmark, road)},
}
BUILDERS = (hr.Stream, hr.GroupedStream, Joining, Processing)  # every method of these has an example


def examples_of(name: str) -> Iterator[doctest.DocTest]:
    """The docstring of an object, and those of the methods of a class."""
    finder = doctest.DocTestFinder(recurse=inspect.isclass(OBJECTS[name]), exclude_empty=False)
    for test in finder.find(OBJECTS[name], name, globs={}):
        if not test.name.rpartition(".")[2].startswith("_"):
            yield test


@pytest.fixture(scope="module")
def names(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("docstrings")
    events = stream(spark, folder / "visits")
    totals = hr.stream(events).name("totals").groupBy("user").agg(n=hr.count(), total=hr.sum("amount"))
    writer = totals.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    given = {"spark": spark, "events": events, "query": query, "checkpoint": str(folder / "checkpoint")}
    return {**given, "F": F, "folder": str(folder), "__name__": "__main__"}


def stream(spark: SparkSession, folder: Path) -> Any:
    """One batch per file of visits."""
    folder.mkdir()
    for number, visits in enumerate(VISITS):
        users, seconds, amounts, pages = zip(*visits, strict=True)
        times = pa.array([START + timedelta(seconds=second) for second in seconds])
        table = pa.table({"user": users, "ts": times, "amount": amounts, "page": pages})
        pq.write_table(table, path := folder / f"{number}.parquet")
        os.utime(path, (1000 + number, 1000 + number))  # Spark takes files in the order of their times
    schema = "user string, ts timestamp, amount double, page string"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.mark.parametrize("name", OBJECTS)
def test_examples_print_what_they_show(names: dict[str, Any], name: str) -> None:
    problems: list[str] = []
    for test in examples_of(name):
        test.globs = dict(names)
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=problems.append)
    assert not problems, "".join(problems)


def test_everything_public_has_an_example() -> None:
    tests = {test.name: test for name in OBJECTS for test in examples_of(name)}
    methods = {f"headrace.{one.__name__}.{method}" for one in BUILDERS for method in public_methods(one)}
    assert methods <= set(tests)
    assert [name for name in sorted(set(OBJECTS) | methods) if not tests[name].examples] == []


def public_methods(one: type) -> list[str]:
    """Names of the methods; a second name of a method, such as `mean`, is left out."""
    functions = [(name, member) for name, member in vars(one).items() if inspect.isfunction(member)]
    return [name for name, member in functions if name == member.__name__ and name[0] != "_"]


def test_no_example_is_skipped() -> None:
    skipped = {
        test.name
        for name in OBJECTS
        for test in examples_of(name)
        if any(doctest.SKIP in example.options for example in test.examples)
    }
    assert skipped == set()
