"""`hr.stream(df)`: ordinary streaming DataFrames in, ordinary streaming DataFrames out.

Every problem of a query is reported while it is built, before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column, DataFrame

from headrace.errors import QueryError
from headrace.plan.choice import checked
from headrace.plan.spec import StoreName
from headrace.plan.work.dedup import Keep
from headrace.spark.api.grouped import GroupedStream
from headrace.spark.api.joining import Joining
from headrace.spark.api.names import checked_name, event_time_column
from headrace.spark.build.dedup import DedupRequest
from headrace.spark.build.recipe import build
from headrace.spark.enrich.request import enriched
from headrace.spark.enrich.store import RedisStore
from headrace.spark.language.columns import first_line, resolve
from headrace.spark.language.plans import watermarks
from headrace.spark.language.windows import TimeWindow, micros
from headrace.spark.tables.register import register


def stream(df: DataFrame) -> Stream:
    """Begin a stateful step on a streaming DataFrame.

    Parameters
    ----------
    df : DataFrame
        A streaming DataFrame of a classic Spark session, with any operations on it.

    Returns
    -------
    Stream
        Offers ``withWatermark``, ``name``, ``store``, ``groupBy`` and ``join``.

    Examples
    --------
    >>> import headrace as hr
    >>> totals = hr.stream(events).groupBy("user").agg(total=hr.sum("amount"))
    >>> writer = totals.writeStream.format("memory").queryName("totals").trigger(availableNow=True)
    >>> writer.option("checkpointLocation", f"{folder}/totals").start().awaitTermination()
    >>> spark.table("totals").orderBy("user", "total").show()
    +----+-----+
    |user|total|
    +----+-----+
    | ann|  5.0|
    | ann| 13.0|
    | bob|  2.0|
    | eve| 16.0|
    +----+-----+
    """
    if "pyspark.sql.connect" in type(df).__module__:
        raise QueryError(
            "this DataFrame belongs to a Spark Connect session, which Headrace cannot extend",
            hint="use a classic session: SparkSession.builder.master(…).getOrCreate(), without remote(…)",
        )
    if not isinstance(df, DataFrame):
        raise QueryError(f"hr.stream takes a DataFrame, not {type(df).__name__}")
    if not df.isStreaming:
        raise QueryError(
            "this is a batch DataFrame; Headrace keeps state for streaming ones",
            hint="read with spark.readStream, or use Spark's own groupBy for batch data",
        )
    register(df.sparkSession)
    return Stream(df)


@dataclass(frozen=True, eq=False)
class Stream(Joining):
    """A streaming DataFrame, ready for a stateful operator.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds").name("visits")
    >>> rows.groupBy("user").count()
    DataFrame[user: string, count: bigint]
    """

    def withWatermark(self, eventTime: str, delayThreshold: str) -> Stream:
        """Declare the event time column, and how late its rows may be.

        Parameters
        ----------
        eventTime : str
            A timestamp column.
        delayThreshold : str
            How far rows may lag behind the largest event time, such as ``"10 seconds"``.

        Returns
        -------
        Stream
            The stream with the watermark, as Spark's own ``withWatermark`` defines it.

        Examples
        --------
        >>> import headrace as hr
        >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
        >>> rows.groupBy(hr.tumbling("1 minute")).agg(n=hr.count())
        DataFrame[window: struct<start:timestamp,end:timestamp>, n: bigint]
        """
        if watermarks(self.df):
            raise QueryError(
                "this stream has a watermark already; Spark allows one definition along a query",
                hint="leave this withWatermark out: the operator goes by the watermark below it. "
                "On the output of another operator, name the event time as hr.tumbling(…, on='window')",
            )
        resolve(self.df, eventTime, "withWatermark")
        try:
            marked = self.df.withWatermark(eventTime, delayThreshold)
        except (AnalysisException, IllegalArgumentException) as error:
            raise QueryError(
                f"withWatermark({eventTime!r}, {delayThreshold!r}): {first_line(error)}"
            ) from None
        return replace(self, df=marked, time=eventTime)

    def name(self, name: str) -> Stream:
        """Name the operator; its state belongs to this name across restarts.

        Parameters
        ----------
        name : str
            Any text of up to 100 printable characters; unique within a query.

        Returns
        -------
        Stream
            The stream; its next operator has the name. The default is ``aggregate-<position>``.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).name("totals").groupBy("user").agg(n=hr.count())
        DataFrame[user: string, n: bigint]
        """
        return replace(self, operator_name=checked_name(name))

    def store(self, store: StoreName) -> Stream:
        """Choose the store of the operator's state, instead of the one that follows from the operator.

        Parameters
        ----------
        store : {"auto", "rmw", "aar", "aur", "range", "memory", "rocksdb"}
            ``"auto"`` uses ``spark.headrace.store``. A store that does not fit the operator is refused when
            the query is built; ``hr.explain`` prints the choice.

        Returns
        -------
        Stream
            The stream; its next operator uses the store.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).store("memory").groupBy("user").agg(n=hr.count())
        DataFrame[user: string, n: bigint]
        """
        return replace(self, store_name=checked(store))

    def groupBy(self, *keys: str | Column | TimeWindow) -> GroupedStream:
        """Group rows by key columns and at most one window.

        Parameters
        ----------
        *keys : str, Column or window
            Column names, columns, and a window such as ``hr.tumbling(…)``; without keys there is one group.

        Returns
        -------
        GroupedStream
            Offers ``agg``, ``applyInArrow`` and ``applyInPandas``.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).groupBy("user", "page").agg(n=hr.count())
        DataFrame[user: string, page: string, n: bigint]
        """
        flat: list[Any] = []
        for key in keys:
            flat += key if isinstance(key, list | tuple) else [key]
        if sum(isinstance(key, TimeWindow) for key in flat) > 1:
            raise QueryError(
                "groupBy takes one window", hint="make a second operator for the second window"
            )
        return GroupedStream(self, tuple(flat), self.operator_name, self.store_name)

    def dropDuplicates(
        self, *subset: str | Column, keep: Keep = "first", within: str | None = None
    ) -> DataFrame:
        """Drop rows whose key was seen before.

        Parameters
        ----------
        *subset : str or Column
            The key; all columns if there are none.
        keep : {"first", "last"}
            ``"first"``: the first row of a key passes; of the rows of one batch, the earliest.
            ``"last"``: a row passes if it is later than all rows of its key before; of the rows of one
            batch, the latest.
        within : str, optional
            How long a key is remembered after its row in event time, such as ``"1 hour"``. It needs a
            watermark. Without it keys are remembered for good.

        Returns
        -------
        DataFrame
            The rows that passed, with the columns of the stream.

        Examples
        --------
        >>> import headrace as hr
        >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
        >>> rows.dropDuplicates("user", "page", within="1 hour")
        DataFrame[user: string, ts: timestamp, amount: double, page: string]
        """
        ttl_us = 0 if within is None else micros(self.df, within, "within")
        return self._deduplicated(subset, keep, ttl_us)

    def dropDuplicatesWithinWatermark(self, *subset: str | Column) -> DataFrame:
        """Drop rows whose key was seen within the delay of the watermark, as Spark's method does.

        Examples
        --------
        >>> import headrace as hr
        >>> rows = hr.stream(events).withWatermark("ts", "1 hour")
        >>> rows.dropDuplicatesWithinWatermark("user", "page")
        DataFrame[user: string, ts: timestamp, amount: double, page: string]
        """
        return self._deduplicated(subset, "first", None)

    def _deduplicated(self, subset: tuple[Any, ...], keep: Keep, ttl_us: int | None) -> DataFrame:
        flat: list[Any] = []
        for key in subset:
            flat += key if isinstance(key, list | tuple) else [key]
        name, store = self.operator_name, self.store_name
        time = event_time_column(self.df, self.time)
        return build(DedupRequest(self.df, time, name, tuple(flat), keep, ttl_us, store))

    def enrich(self, key: str | Column, store: RedisStore) -> DataFrame:
        """Add columns that a key-value store outside has for a key.

        Parameters
        ----------
        key : str or Column
            The key; it is looked up as text. A null key gives nulls.
        store : RedisStore
            The store and its columns: ``hr.redis(…)``.

        Returns
        -------
        DataFrame
            The columns of the stream, and those of the store; null where it does not have the key.

        Notes
        -----
        Each Python worker requests the distinct keys of an Arrow batch together, and caches values. A
        batch that runs again may get other values, if the store has changed in between.

        Examples
        --------
        >>> import headrace as hr
        >>> titles = hr.redis("redis://localhost:6379", "title string", prefix="page:")
        >>> hr.stream(events).enrich("page", titles)
        DataFrame[user: string, ts: timestamp, amount: double, page: string, title: string]
        """
        return enriched(self.df, key, store)
