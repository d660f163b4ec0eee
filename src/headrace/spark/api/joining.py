"""Joins of a stream: with another stream, with its history, and with a static table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from pyspark.sql import Column, DataFrame

from headrace.errors import QueryError
from headrace.plan.spec import StoreName
from headrace.plan.work.joins.stream_join import Meets
from headrace.spark.api.names import event_time_column
from headrace.spark.build.joins.conditions import Condition, conditions_of
from headrace.spark.build.joins.keys import On, keys_of, shared_names
from headrace.spark.build.joins.request import JoinRequest, spelled
from headrace.spark.build.joins.sides import Side, Times, checked_times
from headrace.spark.build.joins.stream_request import Duration, StreamJoinRequest
from headrace.spark.build.joins.stream_request import spelled as spelled_matching
from headrace.spark.build.joins.table_request import TableRequest
from headrace.spark.build.joins.table_request import spelled as table_spelled
from headrace.spark.build.recipe import build
from headrace.spark.language.windows import TimeWindow, micros
from headrace.spark.lookups.open import generations_of
from headrace.spark.lookups.refresh import Version
from headrace.spark.lookups.table import Table, reader_of


@dataclass(frozen=True, eq=False)
class Joining:
    """A streaming DataFrame that can be joined; `Stream` adds the other operators.

    Examples
    --------
    >>> import headrace as hr
    >>> pages = hr.stream(events.select("user", "page"))
    >>> hr.stream(events.select("user", "amount")).join(pages, on="user")
    DataFrame[user: string, amount: double, page: string]
    """

    df: DataFrame
    time: str | None = None
    operator_name: str | None = None
    store_name: StoreName = "auto"

    def join(
        self,
        other: Joining,
        on: On,
        window: TimeWindow | None = None,
        how: str = "inner",
        *,
        between: tuple[Duration, Duration] | None = None,
        retain: Duration | None = None,
        until: str | Column | None = None,
        where: Condition | Sequence[Condition] | None = None,
        times: Times = (None, None),
    ) -> DataFrame:
        """Join with another stream: pairs of rows with equal keys, and near times if bounds are given.

        Parameters
        ----------
        other : Stream
            The right stream. Both streams need a watermark, unless the keys alone decide.
        on : str or list
            The keys: a column name, or a list of names and of pairs ``("<left>", "<right>")``. Types that
            differ are compared as in Spark. A null key never matches.
        window : Tumbling, Sliding or Session, optional
            The window of a pair, such as ``hr.tumbling("10 seconds")``. Every window that contains both
            rows emits the pair when it closes; a session spans the rows of both streams. Event times are
            those of the watermarks, unless the window names a column that both streams have.
        how : {"inner", "left", "right", "full", "semi", "anti"}
            Which rows without a partner are emitted too, with nulls for the other stream. ``"semi"`` gives
            left rows with a partner, ``"anti"`` those without; neither goes with a window. Spark's other
            spellings, such as ``"left_outer"``, mean the same.
        between : tuple of two durations, optional
            Least and most of the left row's time less the right row's, both inclusive: with
            ``("0 seconds", "1 hour")`` left rows match up to an hour after their partner. Rows without a
            partner come out once the watermark excludes one.
        retain : duration, optional
            Rows match if they are at most this far apart in event time. It bounds a join by keys.
        until : str or Column, optional
            A timestamp of the right stream. A right row matches left rows from its own event time until
            that time, both inclusive: bids and an open auction. Not for ``"right"`` and ``"full"``.
        where : str, Column or list of them, optional
            Conditions beside equal keys, without a window. Over both streams any in an inner join,
            elsewhere comparisons, ``and``, ``or``, ``not``, ``is null``, ``+``, ``-``, ``*``, ``abs``.
        times : tuple of two columns, optional
            Event times for ``between``, ``retain`` and ``until``, if not the watermarks'.

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
        >>> views.join(sales, on=[("user", "buyer")], between=("-1 hour", "0 hours")).columns
        ['user', 'page', 'ts', 'amount', 'paid']
        """
        left, right = self._sides(other, times, "join")
        store, name = self._store_and_name(other)
        if window is not None:
            _alone(between, retain, until, where)
            return build(JoinRequest(left, right, on, window, spelled(how), name, store))
        request = StreamJoinRequest(left, right, on, spelled_matching(how), between, retain, name, store)
        return _with_conditions(replace(request, until=until), where)

    def history(
        self,
        other: Joining,
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
        DataFrame[user: string, amount: double, ts: timestamp, page: string, viewed: timestamp]
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
        table: Table,
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
        table : DataFrame or callable
            A batch DataFrame, or a function that returns one and is called whenever the table is read. The
            driver runs a job that reads it; its rows are state beside the stream's.
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
        matching = table_spelled(how)
        keys_of(self.df, reader_of(table)(), on)  # raises before anything is written
        every_ms = None if every is None else micros(self.df, every, "every") // 1000
        rows = generations_of(table, self.operator_name, path, every_ms, version)
        request = TableRequest(Side(self.df, None), rows, on, matching, self.operator_name, self.store_name)
        return build(request)

    def _sides(self, other: Joining, times: Times, method: str) -> tuple[Side, Side]:
        if not isinstance(other, Joining):
            raise QueryError(
                f"{method} takes another stream, not {type(other).__name__}", hint="wrap it: hr.stream(…)"
            )
        left, right = (
            Side(one.df, event_time_column(one.df, one.time) if time is None else time)
            for one, time in zip((self, other), checked_times(times), strict=True)
        )
        return left, right

    def _store_and_name(self, other: Joining) -> tuple[StoreName, str | None]:
        store = other.store_name if self.store_name == "auto" else self.store_name
        return store, self.operator_name or other.operator_name


def _alone(*options: object) -> None:
    """Refuses options that do not go with a window."""
    if any(option is not None for option in options):
        raise QueryError(
            "window= goes with on= and how= only",
            hint="leave between=, retain=, until= and where= out, or leave the window out",
        )


def _with_conditions(
    request: StreamJoinRequest, where: Condition | Sequence[Condition] | None
) -> DataFrame:
    left, right = request.left.df, request.right.df
    names = [] if where is None else shared_names(keys_of(left, right, request.on))
    conditions = conditions_of(left, right, where, request.how, names)
    return conditions.filtered(build(replace(request, where=conditions)))
