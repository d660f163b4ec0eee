"""Groups of a stream: aggregates, functions and processors over each group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from headrace.errors import QueryError
from headrace.plan.choice import checked
from headrace.plan.spec import Emit, StoreName
from headrace.plan.work.changes.top import Ranking
from headrace.spark.api.names import checked_name
from headrace.spark.api.processing import Processing
from headrace.spark.build.aggregate import AggregateRequest
from headrace.spark.build.apply import ApplyRequest
from headrace.spark.build.changes.top import TopRequest
from headrace.spark.build.recipe import build
from headrace.spark.language.aggregates import Aggregate, Function
from headrace.spark.language.pyspark_aggregates import from_columns, from_mapping

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, eq=False)
class GroupedStream(Processing):
    """A grouped stream, before its aggregates are given.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(n=hr.count(), total=hr.sum("amount"))
    DataFrame[user: string, n: bigint, total: double]
    """

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
        >>> hr.stream(events).groupBy("user").name("totals").agg(n=hr.count())
        DataFrame[user: string, n: bigint]
        """
        return replace(self, operator_name=checked_name(name))

    def store(self, store: StoreName) -> GroupedStream:
        """Choose the store of the operator's state, instead of the one that follows from the operator.

        Parameters
        ----------
        store : {"auto", "rmw", "aar", "aur", "range", "memory", "rocksdb"}
            ``"auto"`` uses ``spark.headrace.store``. A store that does not fit the operator is refused when
            the query is built; ``hr.explain`` prints the choice.

        Returns
        -------
        GroupedStream
            The same groups with the store.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).groupBy("user").store("memory").agg(n=hr.count())
        DataFrame[user: string, n: bigint]
        """
        return replace(self, store_name=checked(store))

    def count(self) -> DataFrame:
        """Count the rows of each group, in a column named ``count``.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).groupBy("user").count()
        DataFrame[user: string, count: bigint]
        """
        return self.agg(count=Aggregate("count", None))

    def sum(self, *columns: str) -> DataFrame:
        """Sum columns, each under Spark's name for it: ``sum(amount)``.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).groupBy("user").sum("amount")
        DataFrame[user: string, sum(amount): double]
        """
        return self._each("sum", columns)

    def min(self, *columns: str) -> DataFrame:
        """The smallest value of columns, each under Spark's name for it: ``min(amount)``.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).groupBy("user").min("amount")
        DataFrame[user: string, min(amount): double]
        """
        return self._each("min", columns)

    def max(self, *columns: str) -> DataFrame:
        """The largest value of columns, each under Spark's name for it: ``max(amount)``.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).groupBy("user").max("amount", "ts")
        DataFrame[user: string, max(amount): double, max(ts): timestamp]
        """
        return self._each("max", columns)

    def avg(self, *columns: str) -> DataFrame:
        """The mean of columns, each under Spark's name for it: ``avg(amount)``.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).groupBy("user").avg("amount")
        DataFrame[user: string, avg(amount): double]
        """
        return self._each("avg", columns)

    mean = avg

    def _each(self, function: Function, columns: tuple[str, ...]) -> DataFrame:
        if not columns:
            raise QueryError(f"{function} needs columns", hint=f'name them: .{function}("amount")')
        named = {f"{function}({name})": Aggregate(function, name) for name in columns}
        return self.agg(emit=None, **named)

    def agg(
        self, *columns: Column | Mapping[str, str], emit: Emit | None = None, **aggregates: Aggregate
    ) -> DataFrame:
        """Aggregate each group; the result is a streaming DataFrame again.

        Parameters
        ----------
        *columns : Column or dict
            Aggregates as PySpark writes them: ``F.sum("amount").alias("total")``, or ``{"amount": "sum"}``.
        emit : {"changes", "final", "changelog", "complete"}, optional
            ``"changes"``: after each batch, the groups that it changed. ``"final"``: each window once, in
            the batch whose data closes it; late rows within its lateness emit changed groups again.
            ``"changelog"``: inserts, updates as pairs and deletes, with the kind in ``_kind``.
            ``"complete"``: after each batch, all groups. The default is ``"final"`` with a window, else
            ``"changes"``.
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
        >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
        >>> rows.groupBy("user", hr.tumbling("1 minute")).agg(n=hr.count())
        DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, n: bigint]
        """
        named: dict[str, Aggregate] = {}
        for one in columns:
            more = from_mapping(one) if isinstance(one, Mapping) else from_columns(self.stream.df, [one])
            named.update(more)
        pairs = tuple({**named, **aggregates}.items())
        return build(AggregateRequest(self._grouping(), emit, pairs, self.store_name))

    def top(
        self,
        n: int,
        by: str | Column | Sequence[str | Column],
        *,
        ranking: Ranking = "row_number",
        rank: str | None = None,
        emit: Emit = "changes",
    ) -> DataFrame:
        """Keep the first n rows of each key in an order.

        Parameters
        ----------
        n : int
            Rows whose rank is at most n are kept.
        by : str, Column or list of them
            What ranks rows, the largest first; ``F.col("seen").asc()`` ranks the smallest first. Of equal
            rows the earlier one comes first, then the smaller one, column by column.
        ranking : {"row_number", "rank", "dense_rank"}
            As SQL's functions: ``"row_number"`` keeps n rows, the others keep all rows of equal rank.
        rank : str, optional
            The name of a column for the rank; without it ranks are not emitted.
        emit : {"changes", "changelog"}
            ``"changes"``: the rows that are new among the first, or have a new rank. ``"changelog"``: rows
            that drop out as well, with the kind of each change in ``_kind``.

        Returns
        -------
        DataFrame
            The columns of the stream, then the rank and the kind, if there are such.

        Examples
        --------
        >>> import headrace as hr
        >>> hr.stream(events).groupBy("user").top(10, by="amount", rank="place")
        DataFrame[user: string, ts: timestamp, amount: double, page: string, place: int]
        """
        order = tuple(by) if isinstance(by, list | tuple) else (by,)
        request = TopRequest(self._grouping(), n, order, ranking, rank, emit, self.store_name)
        return build(request)

    def applyInArrow(self, func: Callable[..., pa.Table], schema: StructType | str) -> DataFrame:
        """Call a function with the Arrow table of each key and window, once the window has closed.

        Parameters
        ----------
        func : callable
            ``func(table)`` or ``func(key, table)``. The table has all columns of the stream, ordered by
            event time; the key is a tuple of Arrow scalars, the last one the window's ``(start, end)``. It
            returns an Arrow table, and runs in Spark's worker; late rows of a window cause another call.
        schema : StructType or str
            The schema of the function's result, such as ``"user string, spread double"``.

        Returns
        -------
        DataFrame
            The rows that the function returned, and no other columns.

        Examples
        --------
        >>> import headrace as hr
        >>> import pyarrow as pa
        >>> def spread(key, table):
        ...     amounts = table["amount"].to_numpy()
        ...     return pa.table({"user": [key[0].as_py()], "spread": [float(amounts.std())]})
        >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
        >>> groups = rows.groupBy("user", hr.tumbling("1 minute"))
        >>> groups.applyInArrow(spread, "user string, spread double")
        DataFrame[user: string, spread: double]
        """
        return build(ApplyRequest(self._grouping(), func, schema, "arrow", self.store_name))

    def applyInPandas(self, func: Callable[..., Any], schema: StructType | str) -> DataFrame:
        """Call a function with the pandas frame of each key and window, once the window has closed.

        Parameters
        ----------
        func : callable
            ``func(frame)`` or ``func(key, frame)``. The frame has all columns of the stream, ordered by
            event time, times in the session's zone; the key is a tuple of values, the last one the window's
            ``(start, end)``. It returns a pandas frame, and runs in Spark's worker; late rows of a window
            cause another call.
        schema : StructType or str
            The schema of the function's result, such as ``"user string, spread double"``.

        Returns
        -------
        DataFrame
            The rows that the function returned, and no other columns.

        Examples
        --------
        >>> import headrace as hr
        >>> def ranked(frame):
        ...     return frame.assign(place=frame.amount.rank())[["user", "place"]]
        >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
        >>> groups = rows.groupBy("user", hr.tumbling("1 minute"))
        >>> groups.applyInPandas(ranked, "user string, place double")
        DataFrame[user: string, place: double]
        """
        return build(ApplyRequest(self._grouping(), func, schema, "pandas", self.store_name))
