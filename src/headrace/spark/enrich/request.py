"""`enrich`: checks what the user wrote and adds the look-up to Spark's plan. It keeps no state."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import QueryError
from headrace.spark.enrich.store import RedisStore
from headrace.spark.enrich.task import AHEAD, KEY, EnrichPlan, enriching
from headrace.spark.language.columns import resolve
from headrace.spark.language.windows import micros

PREFETCH = "spark.headrace.prefetch"


def enriched(df: DataFrame, key: str | Column, store: RedisStore) -> DataFrame:
    """The stream with the columns that the store has for a key."""
    if not isinstance(store, RedisStore):
        raise QueryError(
            f"enrich takes a store, not {type(store).__name__}",
            hint='write hr.redis("redis://localhost:6379", "campaign_id string")',
        )
    names = {name.lower() for name in df.columns}
    both = [field.name for field in store.schema if field.name.lower() in names]
    if both:
        raise QueryError(
            f"the stream has a column {both[0]} already", hint="rename one of them before enrich"
        )
    resolved = resolve(df, key, "enrich")
    keyed = df.withColumn(KEY, resolved.column.cast("string"))
    cache_ms = None if store.cache_for is None else micros(df, store.cache_for, "cacheFor") / 1000
    plan = EnrichPlan(
        replace(store.source, cache_ms=cache_ms),
        to_arrow_schema(store.schema, timezone="UTC"),
        0 if df.sparkSession.conf.get(PREFETCH, "auto") == "off" else AHEAD,
    )
    nullable = [T.StructField(field.name, field.dataType) for field in store.schema]
    return keyed.mapInArrow(enriching(plan), T.StructType([*df.schema.fields, *nullable]))
