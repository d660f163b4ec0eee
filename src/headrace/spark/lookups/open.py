"""Opens a static table for a stream: its first generation, its stream of generations, and their refresh."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from headrace.clock import SYSTEM_CLOCK
from headrace.errors import QueryError
from headrace.spark.lookups.generations import Generations
from headrace.spark.lookups.refresh import Refresh, Refresher, Version
from headrace.spark.lookups.table import Table, reader_of

LOCATION = "spark.headrace.state.location"


def generations_of(
    table: Table, name: str | None, path: str | None, every_ms: int | None, version: Version | None
) -> DataFrame:
    """The stream of the table's generations. A table that is read once is read only if it never was."""
    if every_ms is not None and every_ms <= 0:
        raise QueryError("every= is not a duration", hint='write every="10 minutes"')
    read = reader_of(table)
    first = read()
    generations = Generations(first.sparkSession, path or _folder(first.sparkSession, name))
    refresh = Refresh(every_ms, version, SYSTEM_CLOCK.monotonic_ms(), version() if version else None)
    changes = every_ms is not None or version is not None
    if changes or not generations.newest():
        generations.write(first)
    if changes:
        Refresher(read, generations, refresh).start()
    return generations.stream(first.schema)


def _folder(spark: SparkSession, name: str | None) -> str:
    location = spark.conf.get(LOCATION, None)
    if location is None or location.startswith("s3"):
        raise QueryError(
            "lookup needs a folder for the generations of its table",
            hint=f'name one: lookup(…, path="/shared/tables/names"), or set {LOCATION} to a path',
        )
    if name is None:
        raise QueryError("lookup needs a name for its table's folder", hint='name the operator: .name("…")')
    return f"{location.rstrip('/')}/tables/{name}"
