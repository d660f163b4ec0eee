"""Applies a changelog to a table: per batch one upsert or one delete of each key that changed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import QueryError
from headrace.spark.language.changelogs import Changelog, changelog_of

Into = str | Callable[[DataFrame, DataFrame], None]
EachBatch = Callable[[DataFrame, int], None]

_FILES = frozenset({"parquet", "orc", "json", "csv", "avro", "text"})
_DELETED = "__deleted"
_MERGED = "__merged-"  # folders of merged rows


def merge_into(changes: DataFrame, into: Into, *, keys: Sequence[str] | None = None) -> EachBatch:
    """Make a function for ``foreachBatch`` that applies a changelog to a table.

    Each batch becomes at most one upsert or delete per key, whatever filters between the operator and the
    table left of it. A batch that Spark repeats after a failure changes nothing.

    Parameters
    ----------
    changes : DataFrame
        The stream to be written: the result of an operator with ``emit="changelog"``, or a filter or
        projection of it that has the kind column and the keys.
    into : str or callable
        The name of a table. One whose catalog can ``MERGE`` is merged into. A table of files in Spark's own
        catalog is written anew beside the old files and switched to the new ones, for small results. Or a
        function ``into(upserts, deletes)``: the new rows, and the keys of rows to delete.
    keys : sequence of str, optional
        The columns that identify a row; by default those of the operator.

    Returns
    -------
    callable
        A function of a batch and its number, for ``foreachBatch``.

    Examples
    --------
    >>> import headrace as hr
    >>> totals = hr.stream(events).groupBy("user").agg(total=hr.sum("amount"), emit="changelog")
    >>> query = totals.writeStream.foreachBatch(hr.merge_into(totals, "totals"))
    """
    changelog = changelog_of(changes)
    if changelog is None:
        raise QueryError("merge_into takes a changelog", hint='write emit="changelog" in agg(…) or top(…)')
    named = changelog.keys if keys is None else tuple(keys)
    if not named:
        raise QueryError(
            "no columns identify a row of this changelog, so a delete would have no row to find",
            hint='set keys=["<column>", …], if you know that they do; for top, show the rank: rank="place"',
        )
    missing = [name for name in named if name not in changes.columns]
    if missing:
        raise QueryError(
            f"the columns {', '.join(missing)}, which identify a row, are not in the stream",
            hint="keep them in every select, or write keys=[…]",
        )
    return _Merge(changelog, named, into, changes.sparkSession)


@dataclass(frozen=True)
class _Merge:
    """Applies one batch of a changelog."""

    changelog: Changelog
    keys: tuple[str, ...]
    into: Into
    spark: SparkSession  # the user's; a batch has a session of its own

    def __call__(self, batch: DataFrame, number: int) -> None:
        kept = batch.persist()  # a batch is read several times, and must be read as a whole
        try:
            if kept.count():
                self._apply(kept)
        finally:
            kept.unpersist()

    def _apply(self, batch: DataFrame) -> None:
        upserts = batch.where(self.changelog.is_new).drop(self.changelog.kind)
        gone = batch.where(~self.changelog.is_new).select(*map(_quoted, self.keys)).distinct()
        deletes = gone.join(upserts, _equal(gone, upserts, self.keys), "left_anti")
        self._check(upserts)
        if not isinstance(self.into, str):
            self.into(upserts, deletes)
        elif _is_files(batch.sparkSession, self.into):
            _rewrite(self.into, upserts, deletes, self.keys)
            self.spark.catalog.refreshTable(self.into)
        else:
            _merge(self.into, upserts, deletes, self.keys)

    def _check(self, upserts: DataFrame) -> None:
        again = upserts.groupBy(*map(_quoted, self.keys)).count().where("count > 1").head()
        if again is not None:
            raise QueryError(
                f"two rows of one batch have the key {tuple(again)[:-1]}",
                hint=f"{', '.join(self.keys)} do not identify a row: name others in keys=[…]",
            )


def _merge(table: str, upserts: DataFrame, deletes: DataFrame, keys: Sequence[str]) -> None:
    """One MERGE: its source has the new rows, and the keys of rows to delete."""
    changed = upserts.withColumn(_DELETED, F.lit(False)).unionByName(
        deletes.withColumn(_DELETED, F.lit(True)), allowMissingColumns=True
    )
    source = changed.alias("changed")
    values = {name: F.col(f"changed.{_text(name)}") for name in upserts.columns}
    same = [F.col(f"{table}.{_text(name)}").eqNullSafe(values[name]) for name in keys]
    writer = source.mergeInto(table, reduce(Column.__and__, same))
    writer = writer.whenMatched(F.col(f"changed.{_DELETED}")).delete()
    writer = writer.whenMatched().update(values)
    writer.whenNotMatched(~F.col(f"changed.{_DELETED}")).insert(values).merge()


def _rewrite(table: str, upserts: DataFrame, deletes: DataFrame, keys: Sequence[str]) -> None:
    """Writes the merged rows to new files, and switches the table to them; nothing is ever half merged.

    The files before stay for readers under way; those before these are deleted.
    """
    spark = upserts.sparkSession
    rows = spark.table(table)
    for changed in (upserts, deletes):
        rows = rows.join(changed, _equal(rows, changed, keys), "left_anti")
    place, provider = _details(spark, table)
    root = place.rsplit(f"/{_MERGED}", 1)[0]
    folder = f"{root}/{_MERGED}{uuid.uuid4().hex}"
    rows.unionByName(upserts.select(*map(_quoted, rows.columns))).write.format(provider).save(folder)
    spark.sql(f"ALTER TABLE {table} SET LOCATION '{folder}'")
    spark.catalog.refreshTable(table)
    _delete_others(spark, root, {folder, place})


def _is_files(spark: SparkSession, table: str) -> bool:
    try:
        return _details(spark, table)[1].lower() in _FILES
    except KeyError:  # a catalog of its own describes tables differently
        return False


def _details(spark: SparkSession, table: str) -> tuple[str, str]:
    """Location and provider of a table."""
    rows = {
        row["col_name"]: row["data_type"] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    }
    return rows["Location"], rows["Provider"]


def _delete_others(spark: SparkSession, root: str, used: set[str]) -> None:
    """Deletes merged files that no reader can still need."""
    path = spark._jvm.org.apache.hadoop.fs.Path(root)
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    names = {name.rsplit("/", 1)[1] for name in used}
    for status in files.listStatus(path):
        name = str(status.getPath().getName())
        if name.startswith(_MERGED) and name not in names:
            files.delete(status.getPath(), True)


def _equal(left: DataFrame, right: DataFrame, keys: Sequence[str]) -> Column:
    return reduce(Column.__and__, (left[_text(name)].eqNullSafe(right[_text(name)]) for name in keys))


def _text(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted(name: str) -> Column:
    return F.col(_text(name))
