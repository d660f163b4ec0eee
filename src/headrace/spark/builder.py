"""`hr.stream(df)`: ordinary streaming DataFrames in, ordinary streaming DataFrames out.

Everything that can be wrong with a query is found here, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from headrace.errors import QueryError
from headrace.spark.aggregates import Aggregate
from headrace.spark.apply import ApplyRequest, build_apply
from headrace.spark.columns import first_line, resolve
from headrace.spark.join import JoinRequest, Side, build_join
from headrace.spark.join_keys import On
from headrace.spark.operator import Request, build
from headrace.spark.plans import WATERMARK_KEY, watermarks
from headrace.spark.windows import TimeWindow
from headrace.spec import Emit, How
from headrace.store.choose import Said, checked

NAME_LENGTH_MAX = 100


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
    >>> totals = hr.stream(df).groupBy("user").agg(total=hr.sum("amount"))  # doctest: +SKIP
    >>> totals.writeStream.format("console").start()  # doctest: +SKIP
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
    return Stream(df)


@dataclass(frozen=True, eq=False)
class Stream:
    """A streaming DataFrame on its way to a stateful operator."""

    df: DataFrame
    time: str | None = None
    called: str | None = None
    kept_in: Said = "auto"

    def withWatermark(self, eventTime: str, delayThreshold: str) -> Stream:
        """Say which column is the event time, and how late its rows may be.

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
        >>> hr.stream(df).withWatermark("ts", "10 seconds")  # doctest: +SKIP
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
        """Name the operator; its state is found under this name after a restart.

        Parameters
        ----------
        name : str
            Any text of up to 100 printable characters; unique within a query.

        Returns
        -------
        Stream
            The stream whose next operator has the name. Without one it is ``aggregate-<position>``.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(df).name("totals").groupBy("user").agg(n=hr.count())  # doctest: +SKIP
        """
        return replace(self, called=_checked_name(name))

    def store(self, store: Said) -> Stream:
        """Say which store holds the operator's state, instead of the one that follows from the operator.

        Parameters
        ----------
        store : {"auto", "rmw", "aar", "aur", "range", "memory", "rocksdb"}
            ``"auto"`` leaves it to ``spark.headrace.store``. One that cannot hold the state is refused when
            the query is built; ``hr.explain`` says which one was taken.

        Returns
        -------
        Stream
            The stream whose next operator keeps its state there.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(df).store("memory").groupBy("user").agg(n=hr.count())  # doctest: +SKIP
        """
        return replace(self, kept_in=checked(store))

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
        >>> hr.stream(df).groupBy("user", "country").agg(n=hr.count())  # doctest: +SKIP
        """
        flat: list[Any] = []
        for key in keys:
            flat += key if isinstance(key, list | tuple) else [key]
        if sum(isinstance(key, TimeWindow) for key in flat) > 1:
            raise QueryError(
                "groupBy takes one window", hint="make a second operator for the second window"
            )
        return GroupedStream(self, tuple(flat), self.called, self.kept_in)

    def join(self, other: Stream, on: On, window: TimeWindow, how: How = "inner") -> DataFrame:
        """Join with another stream: rows with equal keys meet where they lie in one window.

        Parameters
        ----------
        other : Stream
            The right stream. Both streams need a watermark; a window closes when both watermarks have
            passed its end, and its rows come out then.
        on : str or list
            The keys: a column name, or a list of names and of pairs ``("<left>", "<right>")``. Keys of
            different types are compared in the type that Spark would compare them in. A null key never
            matches.
        window : Tumbling, Sliding or Session
            Where rows meet, such as ``hr.tumbling("10 seconds")``. A pair comes out of every window that
            holds both rows; a session spans the rows of both streams. Event times are those of the
            watermarks, unless the window names a column that both streams have.
        how : {"inner", "left", "right", "full"}
            Which rows without a partner in their window come out too, with nulls for the other stream.

        Returns
        -------
        DataFrame
            The keys under their left names, ``window``, the other columns of the left stream, and those of
            the right one. Names that both have must be changed before.

        Examples
        --------
        >>> import headrace as hr
        >>> people = hr.stream(persons).withWatermark("seen", "4 seconds")  # doctest: +SKIP
        >>> sales = hr.stream(auctions).withWatermark("opened", "4 seconds")  # doctest: +SKIP
        >>> people.join(sales, on=[("id", "seller")], window=hr.tumbling("10 seconds"))  # doctest: +SKIP
        """
        if not isinstance(other, Stream):
            raise QueryError(
                f"join takes another stream, not {type(other).__name__}", hint="wrap it: hr.stream(…)"
            )
        sides = [Side(stream.df, _event_time(stream)) for stream in (self, other)]
        store = other.kept_in if self.kept_in == "auto" else self.kept_in
        return build_join(
            JoinRequest(sides[0], sides[1], on, window, how, self.called or other.called, store)
        )


@dataclass(frozen=True, eq=False)
class GroupedStream:
    """A grouped stream that waits for its aggregates."""

    stream: Stream
    keys: tuple[str | Column | TimeWindow, ...]
    called: str | None
    kept_in: Said = "auto"

    def name(self, name: str) -> GroupedStream:
        """Name the operator, as ``Stream.name`` does.

        Parameters
        ----------
        name : str
            Any text of up to 100 printable characters; unique within a query.

        Returns
        -------
        GroupedStream
            The same groups under the name.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(df).groupBy("user").name("totals").agg(n=hr.count())  # doctest: +SKIP
        """
        return replace(self, called=_checked_name(name))

    def store(self, store: Said) -> GroupedStream:
        """Say which store holds the operator's state, instead of the one that follows from the operator.

        Parameters
        ----------
        store : {"auto", "rmw", "aar", "aur", "range", "memory", "rocksdb"}
            ``"auto"`` leaves it to ``spark.headrace.store``. One that cannot hold the state is refused when
            the query is built; ``hr.explain`` says which one was taken.

        Returns
        -------
        GroupedStream
            The same groups, kept there.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(df).groupBy("user").store("memory").agg(n=hr.count())  # doctest: +SKIP
        """
        return replace(self, kept_in=checked(store))

    def agg(self, emit: Emit | None = None, **aggregates: Aggregate) -> DataFrame:
        """Aggregate each group; the result is a streaming DataFrame again.

        Parameters
        ----------
        emit : {"changes", "final"}, optional
            ``"changes"``: after each batch, the groups that it changed. ``"final"``: each window once, in
            the batch whose data closes it; late rows within its lateness bring changed groups again. The
            default is ``"final"`` with a window, else ``"changes"``.
        **aggregates : Aggregate
            Output column names and their aggregates, such as ``n=hr.count()``.

        Returns
        -------
        DataFrame
            The keys under their names, ``window`` if there is one, then the aggregates.

        Notes
        -----
        Sets ``spark.sql.adaptive.streaming.stateless.enabled`` to false on the session: Spark takes the
        operator for stateless, and adaptive execution would change its partitions. To Spark every result is
        appended, so write it with output mode ``append`` or ``update``.

        Examples
        --------
        >>> import headrace as hr
        >>> rows = hr.stream(df).withWatermark("ts", "10 seconds")  # doctest: +SKIP
        >>> rows.groupBy("user", hr.tumbling("1 minute")).agg(n=hr.count())  # doctest: +SKIP
        """
        return build(self._request(emit, tuple(aggregates.items())))

    def applyInArrow(self, func: Callable[..., pa.Table], schema: StructType | str) -> DataFrame:
        """Call a function with the Arrow table of each key and window, once the window has closed.

        Parameters
        ----------
        func : callable
            ``func(table)`` or ``func(key, table)``. The table has all columns of the stream, ordered by
            event time; the key is a tuple of Arrow scalars, the last one the window's ``(start, end)``. It
            returns an Arrow table, and runs in Spark's worker; a window's late rows bring another call.
        schema : StructType or str
            What the function returns, such as ``"user string, spread double"``.

        Returns
        -------
        DataFrame
            The rows that the function returned, nothing added.

        Examples
        --------
        >>> import headrace as hr
        >>> import pyarrow as pa
        >>> def spread(key, table):
        ...     amounts = table["amount"].to_numpy()
        ...     return pa.table({"user": [key[0].as_py()], "spread": [float(amounts.std())]})
        >>> rows = hr.stream(df).withWatermark("ts", "10 seconds")  # doctest: +SKIP
        >>> groups = rows.groupBy("user", hr.tumbling("1 minute"))  # doctest: +SKIP
        >>> groups.applyInArrow(spread, "user string, spread double")  # doctest: +SKIP
        """
        return build_apply(ApplyRequest(self._request(None, ()), func, schema, "arrow"))

    def applyInPandas(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:
        """Call a function with the pandas frame of each key and window, once the window has closed.

        Parameters
        ----------
        func : callable
            ``func(frame)`` or ``func(key, frame)``. The frame has all columns of the stream, ordered by
            event time, times in the session's zone; the key is a tuple of values, the last one the window's
            ``(start, end)``. It returns a pandas frame, and runs in Spark's worker; a window's late rows
            bring another call.
        schema : StructType or str
            What the function returns, such as ``"user string, spread double"``.

        Returns
        -------
        DataFrame
            The rows that the function returned, nothing added.

        Examples
        --------
        >>> import headrace as hr
        >>> def ranked(frame):
        ...     return frame.assign(place=frame.amount.rank())[["user", "place"]]
        >>> rows = hr.stream(df).withWatermark("ts", "10 seconds")  # doctest: +SKIP
        >>> groups = rows.groupBy("user", hr.tumbling("1 minute"))  # doctest: +SKIP
        >>> groups.applyInPandas(ranked, "user string, place double")  # doctest: +SKIP
        """
        return build_apply(ApplyRequest(self._request(None, ()), func, schema, "pandas"))

    def _request(self, emit: Emit | None, aggregates: tuple[tuple[str, Aggregate], ...]) -> Request:
        df, time = self.stream.df, _event_time(self.stream)
        return Request(df, time, self.keys, self.called, emit, aggregates, self.kept_in)


def _checked_name(name: str) -> str:
    if (
        not isinstance(name, str)
        or not name.strip()
        or not name.isprintable()
        or len(name) > NAME_LENGTH_MAX
    ):
        raise QueryError(
            f"{name!r} is not a name for an operator",
            hint=f"say 1 to {NAME_LENGTH_MAX} printable characters",
        )
    return name


def _event_time(stream: Stream) -> str | None:
    """The watermark's column: the one named here, or the only one that carries Spark's mark."""
    if stream.time is not None:
        return stream.time
    marked = [field.name for field in stream.df.schema.fields if WATERMARK_KEY in field.metadata]
    return "`" + marked[0].replace("`", "``") + "`" if len(marked) == 1 else None
