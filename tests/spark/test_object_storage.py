"""Protects `spark.headrace.state.location=s3://…` in a real query: it survives a killed host and a lost
local disk, a store that throttles and is away for a while, and says what is wrong with a location.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streaming_case import FOURTH, Case, Rows, finished_case
from test_savepoints import drop, is_compaction, savepoint, started

import headrace as hr
from headrace.blob.objects import ObjectBlobs
from headrace.testing.faults.faulty_blobs import Outcome
from headrace.testing.faults.s3_server import BUCKET, S3Server, no_faults

pytestmark = pytest.mark.spark

LOCATION = "spark.headrace.state.location"


@pytest.fixture
def case(spark: SparkSession, server: S3Server, tmp_path: Path) -> Iterator[Case]:
    """A query with its state on the server, three batches done and one waiting."""
    Case(spark, tmp_path, tmp_path).kill_hosts()
    spark.conf.set(LOCATION, server.location(tmp_path.name))
    server.faults = no_faults
    yield finished_case(spark, tmp_path)
    server.faults = no_faults
    spark.conf.unset(LOCATION)
    Case(spark, tmp_path, tmp_path).kill_hosts()  # later files start theirs with a plain environment


def segment_reads(server: S3Server) -> list[str]:
    return [path for method, path in server.requests if method == "GET" and "/segments/" in path]


def fourth(case: Case) -> Rows:
    return case.run(case.totals())


def test_a_query_goes_on_after_its_host_was_killed(case: Case, server: S3Server) -> None:
    assert not case.state.exists()
    server.requests.clear()
    case.kill_hosts()
    assert fourth(case) == FOURTH
    assert segment_reads(server) == [], "the local copies are still there"


def test_a_query_goes_on_without_the_local_disk_and_in_bad_weather(
    case: Case, server: S3Server, spark: SparkSession
) -> None:
    case.kill_hosts()
    local = spark.conf.get("spark.headrace.state.local")
    shutil.rmtree(Path(local) / "copies")
    randomness, numbers = random.Random(1), iter(range(10**6))
    troubles = [503, 500, 409, Outcome.REPLY_LOST, Outcome.REQUEST_LOST]

    def weather(method: str, path: str) -> int | Outcome | None:
        """Away at first, then unreliable."""
        if next(numbers) < 12:
            return 503
        return randomness.choice(troubles) if randomness.random() < 0.1 else None

    server.faults = weather
    server.requests.clear()
    assert fourth(case) == FOURTH
    assert segment_reads(server)


def test_a_bucket_that_is_not_there_is_named(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(LOCATION, "s3://no-such-bucket/state")
    other = Case(spark, case.inputs, tmp_path / "other")
    assert "the bucket no-such-bucket does not exist" in other.refusal(other.totals())


def test_state_is_where_it_was_begun(case: Case, spark: SparkSession) -> None:
    begun = spark.conf.get(LOCATION)
    spark.conf.set(LOCATION, f"s3://{BUCKET}/elsewhere")
    assert f"lies in {begun}" in case.refusal(case.totals())


def test_a_query_goes_on_without_local_copies(case: Case, server: S3Server, spark: SparkSession) -> None:
    """No disk cache: state is read in ranges, and nothing of it stays on the disk."""
    case.kill_hosts()
    copies = Path(spark.conf.get("spark.headrace.state.local")) / "copies"
    shutil.rmtree(copies)
    spark.conf.set("spark.headrace.cache.disk", "0")
    try:
        server.requests.clear()
        assert fourth(case) == FOURTH
    finally:
        spark.conf.unset("spark.headrace.cache.disk")
        case.kill_hosts()
    assert segment_reads(server)
    assert list(copies.rglob("*.segment")) == []
    reads = hr.progress(str(case.checkpoint))["totals"][-1].reads
    assert reads.looked_up > 0, "memory was empty"
    assert reads.fetched_bytes > 0
    assert reads.requests > 0
    assert reads.fetch_ms > 0


def test_a_shared_directory_is_read_through_the_cache(spark: SparkSession, tmp_path: Path) -> None:
    Case(spark, tmp_path, tmp_path).kill_hosts()
    spark.conf.set("spark.headrace.cache.disk", "1g")
    try:
        case = finished_case(spark, tmp_path)
        case.kill_hosts()
        copies = Path(spark.conf.get("spark.headrace.state.local")) / "copies"
        assert list(copies.rglob("*.segment")), "what was written stays as a copy"
        shutil.rmtree(copies)
        assert fourth(case) == FOURTH
    finally:
        spark.conf.unset("spark.headrace.cache.disk")
        Case(spark, tmp_path, tmp_path).kill_hosts()


def test_a_branch_shares_the_objects_of_its_original(
    case: Case, server: S3Server, spark: SparkSession, tmp_path: Path
) -> None:
    """A savepoint names objects, and a branch with other partitions reads them: nothing is copied."""
    branch = replace(case, checkpoint=tmp_path / "branch")
    with server.environment():
        savepoint("create", case.checkpoint, "three")
        server.requests.clear()
        spark.conf.set("spark.headrace.partitions", "5")
        assert started(branch, f"{case.checkpoint}#three") == FOURTH
        spark.conf.set("spark.headrace.partitions", "3")
        written = {path for method, path in server.requests if method == "PUT" and "/segments/" in path}
        changed = {path for path in written if "/segments/v000000000003" in path}
        assert changed
        assert not {path for path in written - changed if not is_compaction(path)}, "nothing is copied"
        assert fourth(case) == FOURTH, "the original goes on"
        drop(case.checkpoint)
        shutil.rmtree(case.checkpoint)
        savepoint("delete", spark.conf.get(LOCATION), "three")
        case.kill_hosts()
        branch.feed(("a", 40, 1.0))
        spark.conf.set("spark.headrace.partitions", "5")
        assert branch.run(branch.totals()) == [(4, "a", 5, 3.75)]
        spark.conf.set("spark.headrace.partitions", "3")
        drop(branch.checkpoint)
        blobs = ObjectBlobs.open(spark.conf.get(LOCATION))
        assert blobs.list("") == [], "with its last owner every object goes"
