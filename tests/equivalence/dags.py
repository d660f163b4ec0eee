"""Random queries of several operators over shared streams, and what a batch computation makes of them.

A node is a relation of (k, n, w): a key, a number, and a window whose last microsecond is the event time.
It exists twice, as a streaming DataFrame and as rows that plain Python computes; the two share nothing but
the numbers. Rows of a stream come late by its delay at most, so no row may ever be dropped.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.spark.language.windows import TimeWindow

S = 1_000_000
KEYS = "abcd"
FAR = 3_000_000_000 * S  # rows of this time close all windows before it
Row = tuple[str, int, int, int]  # key, number, start and end of the window

Windowing = tuple[Literal["tumbling", "sliding", "session"], float, float]  # kind, width or gap, slide


@dataclass(frozen=True)
class Source:
    """One watermarked stream: its files, each one batch, the last of which is far in the future."""

    number: int
    delay_s: int
    files: tuple[tuple[tuple[str, int, int], ...], ...]  # key, number, time

    def write(self, folder: Path) -> None:
        place = folder / f"stream-{self.number}"
        place.mkdir(parents=True)
        far = tuple((key, 0, FAR) for key in KEYS)
        for number, rows in enumerate((*self.files, far)):
            keys, values, times = zip(*rows, strict=True)
            stamps = pa.array(times, pa.timestamp("us", tz="UTC"))
            path = place / f"{number}.parquet"
            pq.write_table(pa.table({"k": keys, "n": values, "ts": stamps}), path)
            os.utime(path, (1000 + number,) * 2)

    def df(self, spark: SparkSession, folder: Path) -> DataFrame:
        files = spark.readStream.schema("k string, n long, ts timestamp").option("maxFilesPerTrigger", 1)
        read = files.parquet(str(folder / f"stream-{self.number}"))
        return read.withWatermark("ts", f"{self.delay_s} seconds")


class Node(Protocol):
    def df(self, streams: dict[int, DataFrame]) -> DataFrame: ...

    def rows(self) -> list[Row]: ...

    def is_bounded(self) -> bool:
        """Whether no session is below: event times inside of a session have no bound."""


@dataclass(frozen=True)
class View:
    """Some keys of a stream; a slow one takes its time over every row."""

    source: Source
    keys: str
    slow: bool

    def stamped(self, streams: dict[int, DataFrame]) -> DataFrame:
        rows = streams[self.source.number].where(F.col("k").isin(*self.keys))
        return rows.select(slowly("k").alias("k"), "n", "ts") if self.slow else rows

    def df(self, streams: dict[int, DataFrame]) -> DataFrame:
        return self.stamped(streams).select("k", "n", moment("ts").alias("w"))

    def rows(self) -> list[Row]:
        return [
            (key, number, at, at + 1)
            for file in self.source.files
            for key, number, at in file
            if key in self.keys
        ]

    def is_bounded(self) -> bool:
        return True


@dataclass(frozen=True)
class Both:
    """A union."""

    left: Node
    right: Node

    def df(self, streams: dict[int, DataFrame]) -> DataFrame:
        return self.left.df(streams).union(self.right.df(streams))

    def rows(self) -> list[Row]:
        return self.left.rows() + self.right.rows()

    def is_bounded(self) -> bool:
        return self.left.is_bounded() and self.right.is_bounded()


@dataclass(frozen=True)
class Summed:
    """A sum per key and window."""

    name: str
    below: Node
    windowing: Windowing

    def df(self, streams: dict[int, DataFrame]) -> DataFrame:
        stream = hr.stream(self.below.df(streams)).name(self.name)
        summed = stream.groupBy("k", window(self.windowing)).agg(n=hr.sum("n"))
        return summed.select("k", "n", F.col("window").alias("w"))

    def rows(self) -> list[Row]:
        sums: dict[tuple[str, int, int], int] = defaultdict(int)
        for key, number, bounds in assigned(self.below.rows(), self.windowing):
            sums[key, *bounds] += number
        return [(key, number, start, end) for (key, start, end), number in sums.items()]

    def is_bounded(self) -> bool:
        return self.windowing[0] != "session" and self.below.is_bounded()


@dataclass(frozen=True)
class Joined:
    """Rows of two relations that meet in a window; those of operators meet where their windows are equal.

    Its event time is the window, or the time of the left row, which lies somewhere inside.
    """

    name: str
    left: Node
    right: Node
    width: float
    inner_time: bool

    @property
    def _views(self) -> bool:
        return isinstance(self.left, View) and isinstance(self.right, View)

    def df(self, streams: dict[int, DataFrame]) -> DataFrame:
        sides, on = (self.left, self.right), None if self._views else "w"
        frames = [
            side.stamped(streams) if self._views and isinstance(side, View) else side.df(streams)
            for side in sides
        ]
        renamed = [
            frame.withColumnsRenamed({"n": f"{side}n", "ts": f"{side}ts"})
            for frame, side in zip(frames, "lr", strict=True)
        ]
        streamed = hr.stream(renamed[0]).name(self.name)
        keys = ["k"] if self._views else ["k", "w"]
        width = hr.tumbling(f"{self.width} seconds", on=on)
        joined = streamed.join(hr.stream(renamed[1]), on=list(keys), window=width, how="left")
        if not self.inner_time:
            when = F.col("window")
        elif self._views:
            when = moment("lts")
        else:
            when = F.col("w")
        number = F.col("ln") * 3 + F.coalesce("rn", F.lit(0))
        return joined.select("k", number.alias("n"), when.alias("w"))

    def rows(self) -> list[Row]:
        width = int(self.width * S)
        right = defaultdict(list)
        for key, number, start, end in self.right.rows():
            same = () if self._views else (start, end)
            right[key, (end - 1) // width, same].append(number)
        pairs = []
        for key, number, start, end in self.left.rows():
            same = () if self._views else (start, end)
            slot = (end - 1) // width
            bounds = (start, end) if self.inner_time else (slot * width, (slot + 1) * width)
            pairs += [(key, number * 3 + other, *bounds) for other in right[key, slot, same] or [0]]
        return pairs

    def is_bounded(self) -> bool:
        return self.left.is_bounded() and self.right.is_bounded()


def moment(time: str) -> Column:
    """A window that lasts one microsecond."""
    end = F.timestamp_micros(F.unix_micros(time) + 1)
    return F.struct(F.col(time).alias("start"), end.alias("end"))


def slowly(key: str) -> Column:
    """A column as it is, after a moment per row; workers cannot import this module, so it is a closure."""

    def wait(value):  # type: ignore[no-untyped-def]
        time.sleep(0.03)
        return value

    return F.udf(wait, "string")(key)


def window(windowing: Windowing) -> TimeWindow:
    kind, width, slide = windowing
    if kind == "session":
        return hr.session(f"{width} seconds", on="w")
    if kind == "sliding":
        return hr.sliding(f"{width} seconds", f"{slide} seconds", on="w")
    return hr.tumbling(f"{width} seconds", on="w")


def assigned(rows: Sequence[Row], windowing: Windowing) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Each row with each window that it falls into."""
    kind, *sizes = windowing
    width, slide = (int(size * S) for size in sizes)
    if kind == "session":
        yield from _sessions(rows, width)
        return
    for key, number, _, end in rows:
        start = (end - 1) // slide * slide
        while start > end - 1 - width:
            yield key, number, (start, start + width)
            start -= slide


def _sessions(rows: Sequence[Row], gap: int) -> Iterator[tuple[str, int, tuple[int, int]]]:
    by_key = defaultdict(list)
    for key, number, _, end in rows:
        by_key[key].append((end - 1, number))
    for key, timed in by_key.items():
        parts: list[list[tuple[int, int]]] = []
        for at, number in sorted(timed):
            if parts and at <= parts[-1][-1][0] + gap:
                parts[-1].append((at, number))
            else:
                parts.append([(at, number)])
        for part in parts:
            yield from ((key, number, (part[0][0], part[-1][0] + gap)) for _, number in part)


def random_dag(seed: int) -> tuple[list[Source], Node]:
    """Streams, and a query of two to four operators over them."""
    random_ = random.Random(seed)
    sources = [_source(random_, number) for number in range(random_.choice((1, 1, 2, 3)))]
    numbers = iter(range(100))
    return sources, _grown(random_, sources, random_.randint(2, 4), numbers)


def _source(random_: random.Random, number: int) -> Source:
    """Rows in the order of their true times; each says a time that is older by the delay at most."""
    delay_s, at = random_.choice((0, 3, 10)), 0
    files = []
    for _ in range(random_.randint(3, 6)):
        favoured = random_.choice(KEYS)  # the others lag behind in this file
        rows = []
        for _ in range(random_.randint(1, 14)):
            at += random_.randint(1, 6 * S)
            key = favoured if random_.random() < 0.7 else random_.choice(KEYS)
            rows.append((key, random_.randint(1, 9), max(0, at - random_.randint(0, delay_s * S))))
        files.append(tuple(rows))
    return Source(number, delay_s, tuple(files))


def _grown(random_: random.Random, sources: list[Source], operators: int, numbers: Iterator[int]) -> Node:
    if operators == 0:
        keys = "".join(random_.sample(KEYS, random_.randint(1, len(KEYS))))
        return View(random_.choice(sources), keys, random_.random() < 0.3)

    def below(count: int) -> Node:
        return _grown(random_, sources, count, numbers)

    kind = random_.choice(("sum", "sum", "union", "join"))
    if kind == "sum":
        return Summed(f"sum-{next(numbers)}", below(operators - 1), _windowing(random_))
    if kind == "union":
        first = random_.randint(1, operators)
        return Both(below(first), below(operators - first))
    first = random_.randint(0, operators - 1)
    left, right = below(first), below(operators - 1 - first)
    inner = left.is_bounded() and right.is_bounded() and random_.random() < 0.5
    return Joined(f"join-{next(numbers)}", left, right, random_.choice((5, 10, 15)), inner)


def _windowing(random_: random.Random) -> Windowing:
    kind = random_.choice(("tumbling", "tumbling", "sliding", "session"))
    if kind == "tumbling":
        width = random_.choice((5, 10, 15))
        return ("tumbling", width, width)
    return ("sliding", 10, 5) if kind == "sliding" else ("session", 7.3, 7.3)
