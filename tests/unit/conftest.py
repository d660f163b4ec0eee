"""A Spark session per test file that asks for one; it ends with the file, so files stay independent."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from headrace.testing.crash import short_spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder: Path = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[1]")
        .config(map=short_spark.SETTINGS)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.headrace.state.local", tempfile.mkdtemp(prefix="unit-"))  # short: it has sockets
        .getOrCreate()
    )
    import standin

    cloudpickle.register_pickle_by_value(standin)  # workers cannot import the tests
    yield session
    cloudpickle.unregister_pickle_by_value(standin)
    session.stop()
