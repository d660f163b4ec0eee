"""Generations of a static table: sealed snapshots in a folder, read as a stream of files.

    <folder>/generation-000001/…      rows of the table, and one row that marks the generation

Spark's log of the file source records the files of each batch, so a batch that runs again has the same
generations. A generation appears at once, by a rename.

Invariants: a generation never changes. Only the newest ones are retained: a batch that runs again needs no
older one, because state has their rows.
Threads: one writer per folder; readers are Spark's.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

GENERATION, MARKER = "__generation", "__marker"
RETAINED = 3
_PREFIX = "generation-"


@dataclass(frozen=True, eq=False)
class Generations:
    """The generations of one table in one folder."""

    spark: SparkSession
    folder: str

    def newest(self) -> int:
        """The number of the newest generation; 0 if there is none."""
        return max(self._numbers(), default=0)

    def write(self, table: DataFrame) -> int:
        """Reads the table, and seals what it has as the next generation."""
        number = self.newest() + 1
        hidden = f"{self.folder}/.writing-{uuid.uuid4()}"
        _with_marker(table, number).write.parquet(hidden)
        self._files().rename(self._path(hidden), self._path(f"{self.folder}/{_PREFIX}{number:06}"))
        for old in self._numbers():
            if old <= number - RETAINED:
                self._files().delete(self._path(f"{self.folder}/{_PREFIX}{old:06}"), True)
        return number

    def stream(self, schema: T.StructType) -> DataFrame:
        """All generations from the newest on, each in the first batch after its rename."""
        reader = self.spark.readStream.schema(stored_schema(schema))
        return reader.parquet(f"{self.folder}/{_PREFIX}*")

    def _numbers(self) -> list[int]:
        files = self._files().globStatus(self._path(f"{self.folder}/{_PREFIX}*"))
        names = [str(one.getPath().getName()) for one in files or ()]
        return [int(name.removeprefix(_PREFIX)) for name in names]

    def _files(self) -> Any:
        return self._path(self.folder).getFileSystem(
            self.spark._jsparkSession.sessionState().newHadoopConf()
        )

    def _path(self, name: str) -> Any:
        jvm: Any = self.spark._jvm
        return jvm.org.apache.hadoop.fs.Path(name)


def stored_schema(schema: T.StructType) -> T.StructType:
    """The columns of a generation's files: those of the table, its number, and whether a row marks it."""
    fields = [T.StructField(field.name, field.dataType, True) for field in schema.fields]
    added = [T.StructField(GENERATION, T.LongType()), T.StructField(MARKER, T.BooleanType())]
    return T.StructType([*fields, *added])


def _with_marker(table: DataFrame, number: int) -> DataFrame:
    numbered = F.lit(number).cast("bigint").alias(GENERATION)
    rows = table.select(*(_quoted(name) for name in table.columns), numbered, F.lit(False).alias(MARKER))
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in table.schema.fields]
    marker = table.sparkSession.range(1).select(*nulls, numbered, F.lit(True).alias(MARKER))
    return rows.unionAll(marker)


def _quoted(name: str) -> Any:
    return F.col("`" + name.replace("`", "``") + "`")
