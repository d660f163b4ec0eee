"""Protects hints in a chain: rows and results of one operator bring the state of the next one ahead, and
results are those of a plain count."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from batch_files import finished, stream_of, write_batches
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr

pytestmark = pytest.mark.spark

KEYS, ROWS, BATCHES = 60_000, 2_000, 4


@pytest.fixture
def small(own_hosts: SparkSession) -> SparkSession:
    """Hosts with memory for a part of the keys."""
    own_hosts.conf.set("spark.headrace.memory", "3m")
    own_hosts.conf.set("spark.headrace.partitions", "2")
    return own_hosts


def batches() -> list[pa.Table]:
    random = np.random.default_rng(5)
    first = pa.table({"k": np.arange(KEYS), "kind": np.array(["a"]).repeat(KEYS)})
    kinds = np.array(["a", "b"])
    return [
        first,
        *(
            pa.table({"k": random.integers(0, KEYS, ROWS), "kind": kinds[random.integers(0, 2, ROWS)]})
            for _ in range(BATCHES)
        ),
    ]


def expected() -> Counter[int]:
    """How often a total of a key changed: once per batch and kind."""
    changes = [set(zip(*table.to_pydict().values(), strict=True)) for table in batches()]
    return Counter(key for pairs in changes for key, _ in pairs)


@pytest.mark.parametrize("source", ["input", "results"])
def test_the_operator_below_gives_the_hints(small: SparkSession, tmp_path: Path, source: str) -> None:
    small.conf.set("spark.headrace.prefetch", source)
    write_batches(tmp_path / "in", batches())
    totals = hr.stream(stream_of(small, tmp_path / "in")).name("totals").groupBy("k", "kind")
    counted = totals.agg(n=hr.count()).where(F.col("n") > 0)
    name = f"changes_{source}"
    changes = hr.stream(counted).name(name).groupBy("k").agg(times=hr.count())
    query, results = finished(changes, tmp_path / "ck")
    assert dict(row for rows in results for row in rows) == expected()
    reads = [batch.reads for batch in hr.progress(query)[name]]
    assert {one.lookahead for one in reads} == {source}
    assert sum(one.hints for one in reads) > ROWS
    assert sum(one.hits for one in reads) > 0
