"""What must come out: Spark's own batch groupBy over the rows that are not late, after every batch.

Each row is repeated for its own batch and all later ones, so that one Spark job gives the state of every
group after every batch. Which rows are late, and which windows have closed, is worked out here in plain
Python from Spark's rule: the watermark is the largest event time (ms) so far minus the delay.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from cases import BATCHES, DELAY_S, WIDTH_S, WINDOWS, Case
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

Rows = dict[str, dict[str, Any]]  # by group, the columns of its row
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def expected(spark: SparkSession, case: Case) -> list[Rows]:
    """The rows to be emitted by each batch."""
    marks = watermarks(case)
    frame = spark.createDataFrame(list(case.rows), case.schema)
    groups: list[Column] = [F.col("at"), *(F.col(key) for key in case.keys)]
    if case.mode != "running":
        frame = in_windows(frame, case, marks)
        groups.append(F.col("window"))
    after = frame.withColumn("at", F.explode(F.sequence("batch", F.lit(BATCHES - 1))))
    state = after.groupBy(*groups).agg(
        F.max("batch").alias("touched"), *(_sparks(*a) for a in case.aggregates)
    )
    emitted: list[Rows] = [{} for _ in range(BATCHES)]
    for row in state.collect():
        if is_emitted(row, case, marks):
            emitted[row["at"]].update(by_group([row], case))
    return emitted


def is_emitted(row: Row, case: Case, marks: list[int | None]) -> bool:
    """Whether the batch that the row is the state after emits it: changed, closed now, or changed since."""
    changed = row["touched"] == row["at"]
    if not case.mode.endswith("final"):
        return bool(changed)
    closed = closed_in(row, marks)
    return closed is not None and bool(closed == row["at"] or (changed and closed < row["at"]))


def in_windows(frame: DataFrame, case: Case, marks: list[int | None]) -> DataFrame:
    """Rows once for each of their windows that still took rows when their batch came."""
    width, slide, lateness = WINDOWS[case.mode]
    rows = frame.withColumn("window", F.window("ts", f"{width} seconds", f"{slide} seconds"))
    before = F.array(*(F.lit(mark).cast("bigint") for mark in [None, *marks]))[F.col("batch")]
    through = F.unix_millis(F.col("window.end")) + lateness * 1000
    return rows.where(before.isNull() | (through > before))


def watermarks(case: Case) -> list[int | None]:
    """Milliseconds, after each batch."""
    if case.mode == "window without watermark":
        return [None] * BATCHES
    marks: list[int | None] = []
    largest: int | None = None
    for batch in range(BATCHES):
        times = [_millis(row[1]) for row in case.rows if row[0] == batch and row[1] is not None]
        largest = max([*times, *([] if largest is None else [largest])], default=None)
        marks.append(None if largest is None else largest - DELAY_S * 1000)
    return marks


def _millis(time: dt.datetime) -> int:
    return (time - EPOCH) // dt.timedelta(milliseconds=1)


def is_late(row: tuple[Any, ...], marks: list[int | None]) -> bool:
    """Whether earlier batches have closed the row's window; rows without a time are in none."""
    batch, time = row[0], row[1]
    if time is None:
        return True
    end = (_millis(time) // (WIDTH_S * 1000) + 1) * WIDTH_S * 1000
    mark = marks[batch - 1] if batch else None
    return mark is not None and end <= mark


def closed_in(row: Row, marks: list[int | None]) -> int | None:
    """The batch whose data closes the row's window."""
    end = _millis(row["window"]["end"].astimezone(dt.UTC))
    return next((batch for batch, mark in enumerate(marks) if mark is not None and end <= mark), None)


def _sparks(function: str, column: str) -> Column:
    by_time = {"first": F.min_by, "last": F.max_by}
    made = by_time[function](column, "ts") if function in by_time else getattr(F, function)(column)
    return made.alias(f"{function}_{column}")


def by_group(rows: list[Row], case: Case) -> Rows:
    """Rows by the text of their keys and window; a group that comes twice is an error of its own."""
    groups: Rows = {}
    for row in rows:
        values = row.asDict(recursive=True)
        group = repr([plain(values[name]) for name in (*case.keys, "window") if name in values])
        assert group not in groups, f"{group} came twice in one batch"
        groups[group] = {f"{f}_{c}": plain(values[f"{f}_{c}"]) for f, c in case.aggregates}
    return groups


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def differences(got: Rows, want: Rows) -> list[str]:
    """What differs, in words; variances may differ by rounding."""
    lines = [f"missing {group}" for group in want.keys() - got.keys()]
    lines += [f"not expected {group}" for group in got.keys() - want.keys()]
    for group in got.keys() & want.keys():
        for name, value in want[group].items():
            if not _same(name, got[group][name], value):
                lines.append(f"{group} {name}: {got[group][name]!r}, not {value!r}")
    return sorted(lines)


def _same(name: str, got: Any, want: Any) -> bool:
    if name.startswith(("var", "stddev")) and isinstance(got, float) and isinstance(want, float):
        return math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-12)
    return bool(got == want)


def schema_of(frame: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
