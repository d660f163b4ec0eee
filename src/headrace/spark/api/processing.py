"""User code with state of a grouped stream: PySpark's processors, and vectorised functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from headrace.plan.spec import StoreName
from headrace.spark.api.names import event_time_column
from headrace.spark.build.aggregate import Grouping
from headrace.spark.build.processors.group_state import GroupStateRequest
from headrace.spark.build.processors.processor import ProcessorRequest
from headrace.spark.build.processors.update import UpdateRequest
from headrace.spark.build.recipe import build
from headrace.spark.language.windows import TimeWindow

if TYPE_CHECKING:
    from headrace.spark.api.builder import Stream


@dataclass(frozen=True, eq=False)
class Processing:
    """A grouped stream that user code can process; `GroupedStream` adds the built-in operators.

    Examples
    --------
    >>> import headrace as hr
    >>> def latest(rows, state):
    ...     newest = rows.groupby("user", as_index=False)[["amount"]].last()
    ...     return newest, newest
    >>> hr.stream(events).groupBy("user").updateInPandas(
    ...     latest, "amount double", "user string, amount double"
    ... )
    DataFrame[user: string, amount: double]
    """

    stream: Stream
    keys: tuple[str | Column | TimeWindow, ...]
    operator_name: str | None
    store_name: StoreName = "auto"

    def transformWithState(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: Any = None,
        eventTimeColumnName: str = "",
    ) -> DataFrame:
        """Run a processor written for PySpark's ``transformWithState``, unchanged.

        Parameters
        ----------
        statefulProcessor : pyspark.sql.streaming.StatefulProcessor
            Receives the rows of each key and keeps state in the variables that its ``init`` declares.
        outputStructType : StructType or str
            The schema of the rows that the processor returns.
        outputMode : {"Append", "Update"}
            The output mode of the query.
        timeMode : {"None", "ProcessingTime", "EventTime"}
            The clock of timers and of time to live.
        initialState : pyspark.sql.GroupedData, optional
            Rows of a grouped batch DataFrame: ``handleInitialState`` gets them in the query's first batch.
        eventTimeColumnName : str, optional
            A timestamp of the output that windows and processors above go by.

        Returns
        -------
        DataFrame
            The rows that the processor returned.

        Examples
        --------
        >>> import headrace as hr
        >>> from pyspark.sql import Row
        >>> from pyspark.sql.streaming import StatefulProcessor
        >>> class Count(StatefulProcessor):
        ...     def init(self, handle):
        ...         self.n = handle.getValueState("n", "n long")
        ...     def handleInputRows(self, key, rows, timerValues):
        ...         n = (self.n.get() or (0,))[0] + sum(1 for row in rows)
        ...         self.n.update((n,))
        ...         yield Row(user=key[0], n=n)
        ...     def close(self):
        ...         pass
        >>> hr.stream(events).groupBy("user").transformWithState(
        ...     Count(), "user string, n long", "Update", "None"
        ... )
        DataFrame[user: string, n: bigint]
        """
        return build(
            ProcessorRequest(
                self._grouping(),
                statefulProcessor,
                outputStructType,
                outputMode,
                timeMode,
                "row",
                self.store_name,
                initialState,
                eventTimeColumnName,
            )
        )

    def transformWithStateInPandas(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: Any = None,
        eventTimeColumnName: str = "",
    ) -> DataFrame:
        """Run a processor written for PySpark's ``transformWithStateInPandas``, unchanged.

        The processor receives pandas frames and returns pandas frames. Parameters are those of
        ``transformWithState``.

        Examples
        --------
        >>> import headrace as hr
        >>> import pandas as pd
        >>> from pyspark.sql.streaming import StatefulProcessor
        >>> class Count(StatefulProcessor):
        ...     def init(self, handle):
        ...         self.n = handle.getValueState("n", "n long")
        ...     def handleInputRows(self, key, rows, timerValues):
        ...         n = (self.n.get() or (0,))[0] + sum(len(frame) for frame in rows)
        ...         self.n.update((n,))
        ...         yield pd.DataFrame({"user": [key[0]], "n": [n]})
        ...     def close(self):
        ...         pass
        >>> hr.stream(events).groupBy("user").transformWithStateInPandas(
        ...     Count(), "user string, n long", "Update", "None"
        ... )
        DataFrame[user: string, n: bigint]
        """
        return build(
            ProcessorRequest(
                self._grouping(),
                statefulProcessor,
                outputStructType,
                outputMode,
                timeMode,
                "pandas",
                self.store_name,
                initialState,
                eventTimeColumnName,
            )
        )

    def applyInPandasWithState(
        self,
        func: Callable[..., Any],
        outputStructType: StructType | str,
        stateStructType: StructType | str,
        outputMode: str,
        timeoutConf: str,
    ) -> DataFrame:
        """Run a function written for PySpark's ``applyInPandasWithState``, unchanged.

        Parameters
        ----------
        func : callable
            ``func(key, frames, state)`` gets the rows of a group as pandas frames and its
            ``pyspark.sql.streaming.state.GroupState``. It returns frames.
        outputStructType : StructType or str
            The schema of the frames that the function returns.
        stateStructType : StructType or str
            The schema of the state, which is a tuple.
        outputMode : {"Append", "Update"}
            The output mode of the query.
        timeoutConf : {"NoTimeout", "ProcessingTimeTimeout", "EventTimeTimeout"}
            The clock of timeouts. A group without rows gets an empty frame once its timeout has passed.

        Returns
        -------
        DataFrame
            The rows of all frames that the function returned.

        Examples
        --------
        >>> import headrace as hr
        >>> import pandas as pd
        >>> def count(key, frames, state):
        ...     n = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        ...     state.update((n,))
        ...     yield pd.DataFrame({"user": [key[0]], "n": [n]})
        >>> hr.stream(events).groupBy("user").applyInPandasWithState(
        ...     count, "user string, n long", "n long", "Update", "NoTimeout"
        ... )
        DataFrame[user: string, n: bigint]
        """
        return build(
            GroupStateRequest(
                self._grouping(),
                func,
                outputStructType,
                stateStructType,
                outputMode,
                timeoutConf,
                self.store_name,
            )
        )

    def updateInArrow(
        self, func: Callable[..., Any], state_schema: StructType | str, output_schema: StructType | str
    ) -> DataFrame:
        """Run a vectorised function over the rows and the state of many keys.

        Parameters
        ----------
        func : callable
            ``func(rows, state)`` receives two Arrow tables: rows of the stream, and the state rows of their
            keys (the key columns, then those of `state_schema`). It returns two tables: the new state rows
            and the output. A key of `rows` without a new state row has no state any more. The rows that a
            function marked with ``hr.append`` returns are added to the state rows of their keys instead.
        state_schema : StructType or str
            The columns of a state row beside the key.
        output_schema : StructType or str
            The columns of the output.

        Returns
        -------
        DataFrame
            The output of all calls.

        Examples
        --------
        >>> import headrace as hr
        >>> import pyarrow as pa
        >>> def add(rows, state):
        ...     joined = pa.concat_tables([state, rows.select(["user", "amount"])])
        ...     totals = joined.group_by("user").aggregate([("amount", "sum")])
        ...     totals = totals.rename_columns({"amount_sum": "amount"})
        ...     return totals, totals
        >>> hr.stream(events).groupBy("user").updateInArrow(
        ...     add, "amount double", "user string, amount double"
        ... )
        DataFrame[user: string, amount: double]
        """
        request = UpdateRequest(self._grouping(), func, state_schema, output_schema, False, self.store_name)
        return build(request)

    def updateInPandas(
        self, func: Callable[..., Any], state_schema: StructType | str, output_schema: StructType | str
    ) -> DataFrame:
        """Run a vectorised function over pandas frames, as ``updateInArrow`` does over Arrow tables.

        Examples
        --------
        >>> import headrace as hr
        >>> import pandas as pd
        >>> def add(rows, state):
        ...     joined = pd.concat([state, rows[["user", "amount"]]])
        ...     totals = joined.groupby("user", as_index=False).sum()
        ...     return totals, totals
        >>> hr.stream(events).groupBy("user").updateInPandas(
        ...     add, "amount double", "user string, amount double"
        ... )
        DataFrame[user: string, amount: double]
        """
        request = UpdateRequest(self._grouping(), func, state_schema, output_schema, True, self.store_name)
        return build(request)

    def _grouping(self) -> Grouping:
        return Grouping(
            self.stream.df,
            event_time_column(self.stream.df, self.stream.time),
            self.keys,
            self.operator_name,
        )
