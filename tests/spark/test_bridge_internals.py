"""Protects what the JVM operator takes from Spark's internals: operator id, batch and both watermarks are
those that Spark's own operator gets in the same place of the same query.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from streaming_case import Case
from test_bridge import settings
from test_bridge_resources import jvm_of

import headrace as hr

pytestmark = pytest.mark.spark

FILE_SOURCE = "org.apache.spark.sql.execution.streaming.runtime.FileStreamSource"

Seen = tuple[int, int, int, int, int]  # operator id, batch, partitions, late and evict watermark


def nodes(plan: Any, name: str) -> list[Any]:
    below = [plan.children().apply(at) for at in range(plan.children().size())]
    matches = [one for child in below for one in nodes(child, name)]
    return [plan, *matches] if plan.getClass().getSimpleName() == name else matches


def seen(case: Case, df: DataFrame, kind: str, late: str, evict: str) -> list[list[Seen]]:
    """What the operators of a kind were given in every batch."""
    batches: list[list[Seen]] = []

    def look(batch: DataFrame, _: int) -> None:
        batch.collect()
        query = next(iter(case.spark.streams.active))
        plan = query._jsq.streamingQuery().lastExecution().executedPlan()
        batches.append([_of(node, late, evict) for node in nodes(plan, kind)])

    case.run(df, look)
    return batches


def _of(node: Any, late: str, evict: str) -> Seen:
    info = node.stateInfo().get()
    marks = [int(getattr(node, name)().get()) for name in (late, evict)]
    return int(info.operatorId()), int(info.storeVersion()), int(info.numPartitions()), marks[0], marks[1]


def test_ids_batches_and_watermarks_are_those_of_sparks_operator(case: Case, tmp_path: Path) -> None:
    for second in (1, 30, 22, 75):
        case.feed(("a", second, 1.0), ("b", second + 3, 1.0))
    rows = case.source().withWatermark("ts", "2 seconds").dropDuplicates(["user", "ts"])
    theirs = rows.groupBy("user", F.window("ts", "10 seconds")).agg(F.count("*").alias("n"))
    theirs = theirs.groupBy(F.window(F.window_time("window"), "20 seconds")).agg(F.sum("n"))
    with settings(case.spark, bridge="jvm"):
        ours = hr.stream(rows).name("low").groupBy("user", hr.tumbling("10 seconds", on="ts"))
        ours = hr.stream(ours.agg(n=hr.count())).name("high")
        ours = ours.groupBy(hr.tumbling("20 seconds", on="window")).agg(n=hr.sum("n"))
    sides = [
        seen(Case(case.spark, case.inputs, tmp_path / "ours"), ours, "StatefulExec", "lateMs", "evictMs"),
        seen(
            Case(case.spark, case.inputs, tmp_path / "theirs"),
            theirs,
            "StateStoreSaveExec",
            "eventTimeWatermarkForLateEvents",
            "eventTimeWatermarkForEviction",
        ),
    ]
    assert sides[0] == sides[1]
    assert [len(batch) for batch in sides[0]] == [2] * 5
    assert sides[0][-1][0][4] == 76_000


@pytest.mark.parametrize(
    ("field", "of"),
    [
        ("unreadFiles", "scala.collection.immutable.Seq"),
        ("allFilesForTriggerAvailableNow", "scala.collection.immutable.Seq"),
        ("maxFilesPerBatch", "scala.Option"),
        ("maxBytesPerBatch", "scala.Option"),
    ],
)
def test_sparks_file_source_has_the_fields_of_the_next_batch(case: Case, field: str, of: str) -> None:
    source = jvm_of(case.spark).java.lang.Class.forName(FILE_SOURCE)
    assert source.getDeclaredField(field).getType().getName() == of


def test_a_file_that_sparks_source_lists_is_path_size_and_time(case: Case) -> None:
    entry = jvm_of(case.spark).java.lang.Class.forName(f"{FILE_SOURCE}$FileEntry")
    fields = entry.getDeclaredFields()
    assert [field.getType().getSimpleName() for field in fields][:3] == ["String", "long", "long"]
