"""`hr.stream(df)`: ordinary streaming DataFrames in, ordinary streaming DataFrames out.

Every problem of a query is reported while it is built, before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column, DataFrame

from headrace.errors import QueryError
from headrace.plan.choice import checked
from headrace.plan.spec import StoreName
from headrace.plan.work.dedup import Keep
from headrace.plan.work.joins.stream_join import Meets
from headrace.spark.api.grouped import GroupedStream
from headrace.spark.api.names import checked_name, event_time_column
from headrace.spark.build.dedup import DedupRequest
from headrace.spark.build.joins.keys import On
from headrace.spark.build.joins.request import JoinRequest, spelled
from headrace.spark.build.joins.sides import Side, Times, checked_times
from headrace.spark.build.joins.stream_request import Duration, StreamJoinRequest
from headrace.spark.build.joins.stream_request import spelled as spelled_matching
from headrace.spark.build.joins.table_request import TableRequest, check_table
from headrace.spark.build.joins.table_request import spelled as table_spelled
from headrace.spark.build.recipe import build
from headrace.spark.enrich.request import enriched
from headrace.spark.enrich.store import RedisStore
from headrace.spark.language.columns import first_line, resolve
from headrace.spark.language.plans import watermarks
from headrace.spark.language.windows import TimeWindow, micros
from headrace.spark.lookups.open import generations_of
from headrace.spark.lookups.refresh import Version
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
class Stream:
    """A streaming DataFrame, ready for a stateful operator.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds").name("visits")
    >>> rows.groupBy("user").count()
    DataFrame[user: string, count: bigint]
    """

    df: DataFrame
    time: str | None = None
    operator_name: str | None = None
    store_name: StoreName = "auto"

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
                "On the output of another operator, say the event time as hr.tumbling(…, on='window')",
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
        Each Python worker asks for the distinct keys of an Arrow batch together, and remembers values. A
        batch that runs again may get other values, if the store has changed in between.

        Examples
        --------
        >>> import headrace as hr
        >>> ads = hr.redis("redis://localhost:6379", "campaign_id string")
        >>> hr.stream(df).enrich("ad_id", ads)  # doctest: +SKIP
        """
        return enriched(self.df, key, store)

    def join(
        self,
        other: Stream,
        on: On,
        window: TimeWindow | None = None,
        how: str = "inner",
        *,
        between: tuple[Duration, Duration] | None = None,
        retain: Duration | None = None,
        until: str | Column | None = None,
        times: Times = (None, None),
    ) -> DataFrame:
        """Join with another stream: pairs of rows with equal keys.

        ``window``, ``between``, ``retain`` or ``until`` decide which of them match, or the keys alone.

        Parameters
        ----------
        other : Stream
            The right stream. Both streams need a watermark, unless the keys alone decide.
        on : str or list
            The keys: a column name, or a list of names and of pairs ``("<left>", "<right>")``. Keys of
            different types are compared in the type that Spark would use. A null key never
            matches.
        window : Tumbling, Sliding or Session, optional
            The window of a pair, such as ``hr.tumbling("10 seconds")``. Every window that contains both
            rows emits the pair when it closes; a session spans the rows of both streams. Event times are
            those of the watermarks, unless the window names a column that both streams have.
        how : {"inner", "left", "right", "full", "semi", "anti"}
            Which rows without a partner are emitted too, with nulls for the other stream. ``"semi"`` gives
            left rows that have a partner, ``"anti"`` those that have none; neither is possible with a
            window. Spark's other spellings mean the same: ``"outer"``, ``"left_outer"`` and so on.
        between : tuple of two durations, optional
            The left row's time less the right row's time, least and most, both inclusive:
            ``("0 seconds", "1 hour")`` matches left rows up to an hour after their partner. Pairs come out
            at once. Rows without a partner come out once the watermark excludes one.
        retain : duration, optional
            Rows of the two streams match if they are at most this far apart in event time. It bounds the
            state of a join by keys.
        until : str or Column, optional
            A timestamp of the right stream. A right row matches left rows from its own event time until
            that time, both inclusive: bids and an open auction. Not for ``"right"`` and ``"full"``.
        times : tuple of two columns, optional
            The event times of the left and of the right stream, where they are not the watermarks' columns.
            For ``between``, ``retain`` and ``until``.

        Returns
        -------
        DataFrame
            The keys under their left names, ``window`` if there is one, the other columns of the left
            stream, and those of the right one. Rename columns that both have before the join.

        Examples
        --------
        >>> import headrace as hr
        >>> views = hr.stream(events.select("user", "page", "ts")).withWatermark("ts", "4 seconds")
        >>> sold = events.selectExpr("user as buyer", "amount", "ts as paid")
        >>> sales = hr.stream(sold).withWatermark("paid", "4 seconds")
        >>> views.join(sales, on=[("user", "buyer")], window=hr.tumbling("10 seconds"))
        DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, page: string, ts: timestamp,
        amount: double, paid: timestamp]
        >>> near = views.join(sales, on=[("user", "buyer")], between=("-1 hour", "0 hours"))
        >>> near.columns
        """
        left, right = self._sides(other, times, "join")
        store, name = self._store_and_name(other)
        if window is None:
            matching = spelled_matching(how)
            request = StreamJoinRequest(left, right, on, matching, between, retain, name, store)
            return build(replace(request, until=until))
        if any(limit is not None for limit in (between, retain, until)):
            raise QueryError(
                "a join takes one of window=, between=, retain= and until=", hint="leave the others out"
            )
        return build(JoinRequest(left, right, on, window, spelled(how), name, store))

    def history(
        self,
        other: Stream,
        on: On,
        within: Duration,
        how: str = "inner",
        *,
        settled: bool = False,
        times: Times = (None, None),
    ) -> DataFrame:
        """Join every row with the recent rows of another stream, as they are when the row arrives.

        Parameters
        ----------
        other : Stream
            The stream whose rows are looked up. Both streams need a watermark.
        on : str or list
            The keys, as in `join`.
        within : duration
            How far back: rows of the other stream match whose event time is at most this much before that
            of the row, and not after it.
        how : {"inner", "left", "semi", "anti"}
            As in `join`. Rows without a match come out at once too.
        settled : bool
            False: a row meets the rows of its own and of earlier batches. True: it waits until the
            watermark passes it, so that the result does not depend on how rows are cut into batches.
        times : tuple of two columns, optional
            The event times of both streams, where they are not the watermarks' columns.

        Returns
        -------
        DataFrame
            As of `join`. A row comes out once per match.

        Examples
        --------
        >>> import headrace as hr
        >>> sales = hr.stream(events.select("user", "amount", "ts")).withWatermark("ts", "1 minute")
        >>> seen = events.selectExpr("user", "page", "ts as viewed")
        >>> views = hr.stream(seen).withWatermark("viewed", "1 minute")
        >>> sales.history(views, on="user", within="6 hours")
        """
        left, right = self._sides(other, times, "history")
        between: tuple[Duration, Duration] = (timedelta(0), within)
        meets: Meets = "settled" if settled else "arrival"
        store, name = self._store_and_name(other)
        return build(
            StreamJoinRequest(left, right, on, spelled_matching(how), between, None, name, store, meets)
        )

    def lookup(
        self,
        table: DataFrame,
        on: On,
        how: str = "inner",
        *,
        every: Duration | None = None,
        version: Version | None = None,
        path: str | None = None,
    ) -> DataFrame:
        """Join every row with the rows of a static table that have its key.

        Parameters
        ----------
        table : DataFrame
            A batch DataFrame. It is read by a job of the driver, and kept as state beside the stream's.
        on : str or list
            The keys, as in `join`.
        how : {"inner", "left", "semi", "anti"}
            As in `join`.
        every : duration, optional
            How often the table is read again. Without it, and without ``version``, it is read once.
        version : callable, optional
            Returns the table's version. The table is read again only if that has changed; the version is
            read at the interval ``every``, else every 10 seconds.
        path : str, optional
            A folder for generations of the table; by default one under ``spark.headrace.state.location``.

        Returns
        -------
        DataFrame
            The keys, the other columns of the stream, and those of the table.

        Notes
        -----
        All rows of a batch meet one generation of the table, also if the batch runs again. A new
        generation changes no result that was emitted before.

        Examples
        --------
        >>> import headrace as hr
        >>> names = spark.createDataFrame([("ann", "Ann"), ("bob", "Bob")], "user string, name string")
        >>> hr.stream(events).lookup(names, on="user", path=f"{folder}/names")
        DataFrame[user: string, ts: timestamp, amount: double, page: string, name: string]
        """
        check_table(table)
        matching = table_spelled(how)
        every_ms = None if every is None else micros(self.df, every, "every") // 1000
        rows = generations_of(table, self.operator_name, path, every_ms, version)
        request = TableRequest(Side(self.df, None), rows, on, matching, self.operator_name, self.store_name)
        return build(request)

    def _sides(self, other: Stream, times: Times, method: str) -> tuple[Side, Side]:
        if not isinstance(other, Stream):
            raise QueryError(
                f"{method} takes another stream, not {type(other).__name__}", hint="wrap it: hr.stream(…)"
            )
        left, right = (
            Side(one.df, event_time_column(one.df, one.time) if time is None else time)
            for one, time in zip((self, other), checked_times(times), strict=True)
        )
        return left, right

    def _store_and_name(self, other: Stream) -> tuple[StoreName, str | None]:
        store = other.store_name if self.store_name == "auto" else self.store_name
        return store, self.operator_name or other.operator_name
