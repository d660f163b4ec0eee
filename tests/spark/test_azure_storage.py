"""Protects `spark.headrace.state.location=az://…` in a real query, against Azurite: it goes on after a
killed host and a lost local disk. Skipped where no `azurite-blob` is installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streaming_case import FOURTH, Case, finished_case

from headrace.testing.faults.azurite import Azurite, is_installed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not is_installed(), reason="azurite-blob is not installed"),
]

LOCATION = "spark.headrace.state.location"


@pytest.fixture
def case(spark: SparkSession, tmp_path: Path) -> Iterator[Case]:
    """A query with its state on the server, three batches done and one waiting."""
    environment = spark.sparkContext.environment  # a new host takes its own from Spark's workers
    Case(spark, tmp_path, tmp_path).kill_hosts()
    with Azurite() as server:
        environment.update(server.variables)
        spark.conf.set(LOCATION, server.location(tmp_path.name))
        yield finished_case(spark, tmp_path)
        spark.conf.unset(LOCATION)
        Case(spark, tmp_path, tmp_path).kill_hosts()  # later files start theirs with a plain environment
        for name in server.variables:
            environment.pop(name, None)


def test_a_query_goes_on_without_host_and_local_disk(case: Case, spark: SparkSession) -> None:
    assert not case.state.exists()
    case.kill_hosts()
    local = spark.conf.get("spark.headrace.state.local")
    shutil.rmtree(Path(local) / "copies")
    assert case.run(case.totals()) == FOURTH


def test_a_container_that_is_not_there_is_named(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(LOCATION, "az://no-such-container/state")
    other = Case(spark, case.inputs, tmp_path / "other")
    assert "the container no-such-container does not exist" in other.refusal(other.totals())
