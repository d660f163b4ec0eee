"""Headrace: a state engine for PySpark Structured Streaming.

The names that need Spark are loaded when they are first used: the state host imports this package too,
and must not pay for Spark.

Examples
--------
>>> import headrace as hr
>>> counts = (
...     hr.stream(df)
...     .withWatermark("ts", "10 seconds")
...     .groupBy("user", hr.tumbling("1 minute"))
...     .agg(n=hr.count(), total=hr.sum("amount"), top=hr.max("amount"))
... )  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, QueryError, SettingError

if TYPE_CHECKING:
    from headrace.spark.aggregates import (
        avg,
        count,
        first,
        last,
        max,
        mean,
        min,
        stddev,
        stddev_pop,
        stddev_samp,
        sum,
        var_pop,
        var_samp,
        variance,
    )
    from headrace.spark.builder import GroupedStream, Stream, stream
    from headrace.spark.explain import explain
    from headrace.spark.holistic import (
        approx_percentile,
        collect_list,
        collect_set,
        median,
        mode,
        percentile,
        top,
    )
    from headrace.spark.marks import append, point_update, range_read
    from headrace.spark.progress import progress, storage_waits
    from headrace.spark.start import start
    from headrace.spark.windows import Session, Sliding, Tumbling, session, sliding, tumbling

__all__ = [
    "GroupedStream",
    "HeadraceError",
    "QueryError",
    "Session",
    "SettingError",
    "Sliding",
    "Stream",
    "Tumbling",
    "append",
    "approx_percentile",
    "avg",
    "collect_list",
    "collect_set",
    "count",
    "explain",
    "first",
    "last",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "percentile",
    "point_update",
    "progress",
    "range_read",
    "session",
    "sliding",
    "start",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "storage_waits",
    "stream",
    "sum",
    "top",
    "tumbling",
    "var_pop",
    "var_samp",
    "variance",
]

_HOMES = {
    "GroupedStream": "builder",
    "Stream": "builder",
    "stream": "builder",
    "Session": "windows",
    "Sliding": "windows",
    "Tumbling": "windows",
    "session": "windows",
    "sliding": "windows",
    "tumbling": "windows",
    "progress": "progress",
    "storage_waits": "progress",
    "start": "start",
    "explain": "explain",
    "approx_percentile": "holistic",
    "collect_list": "holistic",
    "collect_set": "holistic",
    "median": "holistic",
    "mode": "holistic",
    "percentile": "holistic",
    "top": "holistic",
    "append": "marks",
    "point_update": "marks",
    "range_read": "marks",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(import_module(f"headrace.spark.{_HOMES.get(name, 'aggregates')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
