"""Protects the replay of a withdrawn batch: its rows reach no sink again, and the batch that was planned
after it runs with the offsets that it had.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from streaming_case import FOURTH, Case, Rows

import headrace as hr
from headrace.errors import StateMissing
from headrace.plan.times import TIMES
from headrace.recovery import recover
from headrace.spark.api.start import refuse_other_batch

pytestmark = pytest.mark.spark


def started(case: Case, df: DataFrame) -> Rows:
    """Runs all there is with `hr.start`; the rows that reached the sink."""
    rows: Rows = []

    def collect(batch: DataFrame, number: int) -> None:
        rows.extend((number, *row) for row in batch.collect())

    writer = df.writeStream.option("checkpointLocation", str(case.checkpoint))
    hr.start(writer.foreachBatch(collect).trigger(availableNow=True)).awaitTermination()
    return sorted(rows, key=repr)


def lose(case: Case, *versions: int) -> None:
    """Removes versions from shared storage; the log of a lost machine is gone as well."""
    for version in versions:
        for manifest in case.state.glob(f"*/totals/p*/manifests/v{version:012d}-*"):
            manifest.unlink()


def test_the_plan_after_a_replayed_batch_is_put_back(copy: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch 3 was planned with one file, and broke off; a fifth file is there when the query starts."""
    monkeypatch.setattr(recover, "TIMES", replace(TIMES, gap_settle_s=2.0))  # its hosts are dead
    copy.run(copy.totals())
    (copy.checkpoint / "commits" / "3").unlink()
    (copy.checkpoint / "commits" / ".3.crc").unlink()
    plan = (copy.checkpoint / "offsets" / "3").read_bytes()
    lose(copy, 2, 3)
    copy.kill_hosts()
    reader = copy.spark.readStream.schema("user string, ts timestamp, amount double")
    many = reader.option("maxFilesPerTrigger", 10).parquet(str(copy.inputs))
    copy.feed(("a", 40, 1.0))
    totals = hr.stream(many).name("totals").groupBy("user").agg(n=hr.count(), total=hr.sum("amount"))
    assert started(copy, totals) == [*FOURTH, (4, "a", 5, 3.75)]
    assert (copy.checkpoint / "offsets" / "3").read_bytes() == plan


@pytest.mark.parametrize("ran", [[], [3], [2, 3]])
def test_a_replay_of_another_batch_is_noticed(ran: list[int]) -> None:
    with pytest.raises(StateMissing, match=r"batch 2 .* was to be replayed for its state, and Spark ran"):
        refuse_other_batch("file:/ck", 2, ran)
    refuse_other_batch("file:/ck", 2, [2])
