"""Protects mixing with Spark's own stateful operators: with `timing=spark`, random queries give its rows.

Every batch of a query is compared with the same query on Spark's operators alone. Queries have windows,
sessions and deduplication above and below each other, joins and unions of two streams, late rows, empty
files, a restart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from random_queries import build, draw, feed, files

pytestmark = pytest.mark.spark
NAMED = (89,)  # a session of Headrace, a window of Spark, a window of Headrace


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    seeds = range(metafunc.config.getoption("--queries"))
    metafunc.parametrize("seed", [*seeds, *(seed for seed in NAMED if seed not in seeds)])


@pytest.fixture(scope="module", autouse=True)
def _settings(spark: SparkSession) -> Any:
    settings = {"spark.headrace.bridge": "jvm", "spark.headrace.timing": "spark"}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_every_batch_has_the_rows_of_spark_alone(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    query, rows = draw(seed), {}
    for side, ours in (("spark", False), ("headrace", True)):
        folder = tmp_path / side
        got: list[tuple[Any, ...]] = []
        for phase in files(seed, folder / "in"):
            feed(phase)
            got += run(build(spark, query, folder / "in", ours), folder / "checkpoint")
        rows[side] = sorted(got, key=repr)
    assert rows["headrace"] == rows["spark"], str(query)
    assert rows["spark"] or query.source == "join", "the last file closes every window"


def run(df: DataFrame, checkpoint: Path) -> list[tuple[Any, ...]]:
    """The rows that reached the sink, each after its batch."""
    got: list[tuple[Any, ...]] = []

    def collect(batch: DataFrame, number: int) -> None:
        got.extend((number, *row) for row in batch.collect())

    writer = df.writeStream.option("checkpointLocation", str(checkpoint)).outputMode("append")
    query = writer.foreachBatch(collect).trigger(availableNow=True).start()
    query.awaitTermination()
    return got
