"""`dropDuplicates`: rows of a stream without those whose key was seen before."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession

from headrace.errors import QueryError
from headrace.plan.options import Options
from headrace.plan.spec import OperatorSpec, StoreName, Window
from headrace.plan.work.dedup import Dedup, Keep
from headrace.spark.build.changes.row_columns import quoted, row_columns
from headrace.spark.build.parts import key_of, name_of, supported, time_of, wire_keys
from headrace.spark.build.project import StreamRows
from headrace.spark.build.recipe import Blueprint
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.plans import watermarks
from headrace.spark.language.windows import event_time

SLICES = 8  # a key is dropped at most an eighth of its time to live too late
SLICE_MIN_US = 1_000_000


@dataclass(frozen=True, eq=False)
class DedupRequest:
    """A stream without the rows whose key was seen before."""

    df: DataFrame
    watermark_column: str | None
    name: str | None
    subset: tuple[str | Column, ...]
    keep: Keep
    ttl_us: int | None  # None: as long as the watermark's delay; 0: for good
    store: StoreName = "auto"

    @property
    def spark(self) -> SparkSession:
        return self.df.sparkSession

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the operator, without touching the session."""
        df = self.df
        if self.keep not in ("first", "last"):
            raise QueryError(f"keep={self.keep!r}", hint='write keep="first" or keep="last"')
        marks = supported(df, watermarks(df))
        ttl_us = self._ttl_us(tuple(mark.delay_ms for mark in marks))
        timed = None
        if marks or self.keep == "last" or ttl_us:
            timed = time_of(df, self.watermark_column, None, "dropDuplicates", marks)
        keys = [key_of(df, key) for key in self.subset or tuple(map(quoted, df.columns))]
        fields, leaves, _ = wire_keys(keys, None)
        inputs, columns, outputs = row_columns(df)
        spec = OperatorSpec(
            name=name_of(df, self.name),
            keys=tuple(fields),
            inputs=tuple(inputs),
            work=Dedup(self.keep, ttl_us),
            window=Window(max(ttl_us // SLICES, SLICE_MIN_US), lateness_us=ttl_us) if ttl_us else None,
            emit="changes",
            timed=timed is not None,
            delays_ms=tuple(mark.delay_ms for mark in marks),
            partitions=options.partitions,
        )
        time = event_time(self.spark, timed) if timed else None
        times = time_inputs([(df, timed)], marks)
        return Blueprint(spec, StreamRows(df, leaves, columns, time), times, outputs)

    def _ttl_us(self, delays_ms: tuple[int, ...]) -> int:
        if self.ttl_us is not None and (self.ttl_us == 0 or delays_ms):
            return self.ttl_us
        if not delays_ms:
            raise QueryError(
                "dropDuplicates within a time needs a watermark, or no key would ever expire",
                hint='add .withWatermark("<event time>", "10 seconds") before it',
            )
        return max(delays_ms) * 1000
