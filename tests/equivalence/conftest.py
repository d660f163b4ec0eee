"""A Spark session for the equivalence tests, and how many random cases they run (`--seeds`, `--dags`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

SEEDS = 3
DAGS = 8
DAGS_SHORT = 3  # those that `make test` runs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=SEEDS, help="random cases per equivalence test")
    parser.addoption("--dags", type=int, default=DAGS, help="random queries of several operators")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds", default=SEEDS)))
    if "dag" in metafunc.fixturenames:
        dags = range(metafunc.config.getoption("--dags", default=DAGS))
        metafunc.parametrize("dag", [pytest.param(dag, marks=_marks(dag)) for dag in dags])


def _marks(dag: int) -> list[pytest.MarkDecorator]:
    return [] if dag < DAGS_SHORT else [pytest.mark.long]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "Europe/Berlin")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.headrace.state.local", str(folder / "local"))
        .config("spark.headrace.partitions", "3")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
