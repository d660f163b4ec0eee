"""`hr.redis`: a description of a Redis server for `enrich`."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.outside.address import parsed
from headrace.outside.policy import Down, checked
from headrace.outside.redis import RedisSource
from headrace.spark.processors.ddl import struct_of


@dataclass(frozen=True, eq=False)
class RedisStore:
    """Columns that a Redis server has for keys; made by `hr.redis`."""

    source: RedisSource
    schema: T.StructType
    cache_for: str | None


def redis(
    url: str,
    columns: T.StructType | str,
    *,
    prefix: str = "",
    hashes: bool = False,
    down: Down = "wait",
    cache: int = 100_000,
    cacheFor: str | None = "10 minutes",
) -> RedisStore:
    """Describe a Redis server whose values become columns.

    Parameters
    ----------
    url : str
        ``redis://[user:password@]host[:port][/database]``, ``rediss://…`` for TLS, or ``unix:///path``.
    columns : StructType or str
        The new columns, such as ``"campaign_id string"``. Values are text in Redis and are converted.
    prefix : str
        Put before a key of the stream to make the key in Redis.
    hashes : bool
        Whether the values are hashes; each column is the field of its name. Else they are strings, and
        there is one column.
    down : {"wait", "null", "fail"}
        While the server is down: wait for it (five minutes at most, then the batch fails), go on with
        nulls, or fail the batch at once.
    cache : int
        How many keys each Python worker remembers.
    cacheFor : str or None
        How long a value is remembered, such as ``"10 minutes"``; None for good. Keys that Redis does not
        have are not remembered.

    Returns
    -------
    RedisStore
        For ``hr.stream(df).enrich(…)``.

    Examples
    --------
    >>> import headrace as hr
    >>> ads = hr.redis("redis://localhost:6379", "campaign_id string", prefix="ad:")
    """
    schema = struct_of(columns) if isinstance(columns, str) else columns
    if not hashes and len(schema.fields) != 1:
        raise QueryError(
            f"a string of Redis gives one column, not {len(schema.fields)}",
            hint="write hashes=True if the values are hashes, or name one column",
        )
    nested = [f.name for f in schema if isinstance(f.dataType, T.StructType | T.ArrayType | T.MapType)]
    if nested:
        raise QueryError(f"column {nested[0]} of a Redis value is nested", hint="read it as a string")
    if cache < 0:
        raise QueryError(f"cache={cache}", hint="write a number of keys, or 0 for no cache")
    names = tuple(field.name for field in schema.fields)
    source = RedisSource(parsed(url), names, prefix, hashes, checked(down), cache)
    return RedisStore(source, schema, cacheFor)
