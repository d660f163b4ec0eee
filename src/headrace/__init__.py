"""Headrace: a state engine for PySpark Structured Streaming.

Names that need Spark are loaded on first use: the state host imports this package too and does not load
Spark.

Examples
--------
>>> import headrace as hr
>>> counts = (
...     hr.stream(events)
...     .withWatermark("ts", "10 seconds")
...     .groupBy("user", hr.tumbling("1 minute"))
...     .agg(n=hr.count(), total=hr.sum("amount"), top=hr.max("amount"))
... )
>>> counts.columns
['user', 'window', 'n', 'total', 'top']
"""

from importlib import import_module
from typing import TYPE_CHECKING
from zipimport import zipimporter

from headrace.errors import HeadraceError, QueryError, SettingError

if __spec__ is not None and isinstance(__spec__.loader, zipimporter):  # spark-submit --py-files
    raise ImportError(
        f"Headrace cannot run from the archive {__spec__.loader.archive}: its kernels must be files. "
        "Ship a packed environment with spark-submit --archives instead, or install it on every machine "
        "(docs/howto/cluster.md)."
    )

if TYPE_CHECKING:
    from headrace.spark.api.builder import Stream, stream
    from headrace.spark.api.grouped import GroupedStream
    from headrace.spark.api.merge import merge_into
    from headrace.spark.api.progress import progress, storage_waits
    from headrace.spark.api.savepoints import create_savepoint, delete_savepoint, savepoints
    from headrace.spark.api.start import start
    from headrace.spark.api.stop import stop
    from headrace.spark.api.view import view
    from headrace.spark.asynchronous.processor import AsyncProcessor
    from headrace.spark.build.explain import explain
    from headrace.spark.enrich.store import redis
    from headrace.spark.language.aggregates import (
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
    from headrace.spark.language.by_column import max_by, min_by
    from headrace.spark.language.distinct import approx_count_distinct, count_distinct
    from headrace.spark.language.holistic import (
        approx_percentile,
        collect_list,
        collect_set,
        median,
        mode,
        percentile,
        top,
    )
    from headrace.spark.language.marks import append, point_update, range_read
    from headrace.spark.language.windows import Session, Sliding, Tumbling, session, sliding, tumbling
    from headrace.spark.processors.tester import ProcessorTester
    from headrace.spark.tables.register import register
    from headrace.spark.tables.write import write_state
    from headrace.spark.windows.custom import Custom, custom_window
    from headrace.spark.windows.settled import Counted, Marked, ended_by, rows

__all__ = [
    "AsyncProcessor",
    "Counted",
    "Custom",
    "GroupedStream",
    "HeadraceError",
    "Marked",
    "ProcessorTester",
    "QueryError",
    "Session",
    "SettingError",
    "Sliding",
    "Stream",
    "Tumbling",
    "append",
    "approx_count_distinct",
    "approx_percentile",
    "avg",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "create_savepoint",
    "custom_window",
    "delete_savepoint",
    "ended_by",
    "explain",
    "first",
    "last",
    "max",
    "max_by",
    "mean",
    "median",
    "merge_into",
    "min",
    "min_by",
    "mode",
    "percentile",
    "point_update",
    "progress",
    "range_read",
    "redis",
    "register",
    "rows",
    "savepoints",
    "session",
    "sliding",
    "start",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "stop",
    "storage_waits",
    "stream",
    "sum",
    "top",
    "tumbling",
    "var_pop",
    "var_samp",
    "variance",
    "view",
    "write_state",
]

_HOMES = {
    "AsyncProcessor": "asynchronous.processor",
    "GroupedStream": "api.grouped",
    "ProcessorTester": "processors.tester",
    "Stream": "api.builder",
    "stream": "api.builder",
    "Session": "language.windows",
    "Sliding": "language.windows",
    "Tumbling": "language.windows",
    "session": "language.windows",
    "sliding": "language.windows",
    "tumbling": "language.windows",
    "Counted": "windows.settled",
    "Custom": "windows.custom",
    "Marked": "windows.settled",
    "custom_window": "windows.custom",
    "ended_by": "windows.settled",
    "rows": "windows.settled",
    "merge_into": "api.merge",
    "progress": "api.progress",
    "storage_waits": "api.progress",
    "create_savepoint": "api.savepoints",
    "delete_savepoint": "api.savepoints",
    "savepoints": "api.savepoints",
    "start": "api.start",
    "stop": "api.stop",
    "view": "api.view",
    "explain": "build.explain",
    "approx_count_distinct": "language.distinct",
    "count_distinct": "language.distinct",
    "max_by": "language.by_column",
    "min_by": "language.by_column",
    "approx_percentile": "language.holistic",
    "collect_list": "language.holistic",
    "collect_set": "language.holistic",
    "median": "language.holistic",
    "mode": "language.holistic",
    "percentile": "language.holistic",
    "top": "language.holistic",
    "append": "language.marks",
    "point_update": "language.marks",
    "range_read": "language.marks",
    "redis": "enrich.store",
    "register": "tables.register",
    "write_state": "tables.write",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(import_module(f"headrace.spark.{_HOMES.get(name, 'language.aggregates')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
