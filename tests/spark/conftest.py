"""One Spark session for all files of this folder.

The session tries a failed task a second time. It ends with the folder, and its hosts with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from local_hosts import hosts_of
from pyspark.sql import SparkSession
from streaming_case import Case, finished_case

from headrace.testing.crash import short_spark
from headrace.testing.faults.s3_server import S3Server


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,2]")
        .config(map=short_spark.SETTINGS)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder / "scratch"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.headrace.state.local", str(folder / "local"))
        .config("spark.headrace.partitions", "3")
        .config("spark.headrace.memory", "64m")
        .config("spark.headrace.bridge", pytestconfig.getoption("--bridge"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")  # these tests fail queries on purpose
    yield session
    session.stop()


OUT_OF_TIME = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    is_late = report.failed and "from pytest-timeout" in report.longreprtext
    item.stash[OUT_OF_TIME] = item.stash.get(OUT_OF_TIME, False) or is_late
    return report


@pytest.fixture(autouse=True)
def settings_of_the_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """Settings that a test changes are restored after it, and its queries end, also when it fails."""
    if "spark" not in request.fixturenames:
        yield
        return
    session = request.getfixturevalue("spark")
    conf = session.conf
    before = dict(conf.getAll)
    yield
    if request.node.stash.get(OUT_OF_TIME, False):
        _reconnect(session)
    for query in session.streams.active:
        query.stop()
    after = dict(conf.getAll)
    for name in after.keys() - before.keys():
        conf.unset(name)
    for name, value in before.items():
        if after.get(name) != value:
            conf.set(name, value)


def _reconnect(session: SparkSession) -> None:
    """A test that ran out of time leaves a call to the JVM unanswered: its connection is closed.

    The next call has a new connection and a new thread in the JVM, which has no active session yet.
    """
    gateway = session.sparkContext._gateway
    connection = None if gateway is None else gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close(reset=True)
    session.createDataFrame([(0,)], "n int")  # makes the session active


@pytest.fixture
def own_hosts(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """Hosts in a folder of the test. They end with it: later tests that kill a host must not hit these."""
    spark.conf.set("spark.headrace.state.local", str(tmp_path / "local"))
    yield spark
    for host in hosts_of(tmp_path / "local"):
        with suppress(psutil.NoSuchProcess):
            host.terminate()
            host.wait(60)


@pytest.fixture
def case(spark: SparkSession, tmp_path: Path) -> Case:
    return Case(spark, tmp_path / "in", tmp_path / "ck")


@pytest.fixture(scope="package")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A query that has run three batches."""
    return finished_case(spark, tmp_path_factory.mktemp("finished"))


@pytest.fixture
def copy(finished: Case, tmp_path: Path) -> Iterator[Case]:
    """The finished query for one test to spoil; a fourth batch waits for it.

    Copies share their input: what a test adds to it goes with the test.
    """
    before = set(finished.inputs.iterdir())
    yield finished.copied(tmp_path / "ck")
    for path in set(finished.inputs.iterdir()) - before:
        path.unlink()


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[S3Server]:
    """A server that the hosts know of: a new host takes its environment from Spark's workers."""
    environment = spark.sparkContext.environment
    with S3Server() as server:
        environment.update(server.variables)
        yield server
        for name in server.variables:
            environment.pop(name, None)
