"""Protects: chained operators lose no row, whatever else is in the query (docs/design/0005-watermarks.md).

Random queries of two to four operators (chains, unions, joins, windows of all kinds) in random batches,
against a batch computation in plain Python. They have one to three streams, whose views are slow or lag
behind. `--dags N` says how many.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dags import FAR, Row, random_dag
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

PATHS = {"python": ("python", "eager"), "jvm": ("jvm", "eager"), "spark": ("jvm", "spark")}


@pytest.mark.parametrize("path", PATHS)
def test_a_query_of_several_operators_is_its_batch_computation(
    spark: SparkSession, tmp_path: Path, dag: int, path: str
) -> None:
    sources, top = random_dag(dag)
    for source in sources:
        source.write(tmp_path)
    spark.conf.set("spark.headrace.partitions", str(1 + dag % 2))
    bridge, timing = PATHS[path]
    spark.conf.set("spark.headrace.bridge", bridge)
    spark.conf.set("spark.headrace.timing", timing)
    got: list[Row] = []

    def collect(batch: DataFrame, _: int) -> None:
        bounds = [F.unix_micros(f"w.{name}") for name in ("start", "end")]
        got.extend(tuple(row) for row in batch.select("k", "n", *bounds).collect())

    df = top.df({source.number: source.df(spark, tmp_path) for source in sources})
    writer: Any = df.writeStream.option("checkpointLocation", str(tmp_path / "ck")).foreachBatch(collect)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    late = {name: sum(batch.late_rows for batch in batches) for name, batches in hr.progress(query).items()}
    # A view at the top passes the rows on that close the windows; so do open windows nowhere else.
    assert Counter(row for row in got if row[3] < FAR // 2) == Counter(top.rows()), top
    assert not any(late.values()), late
