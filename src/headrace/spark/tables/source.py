"""The data source `headrace`: state of a query as a table, by the query's checkpoint.

    spark.read.format("headrace").option("checkpoint", …).load()                             its operators
    spark.read.format("headrace").option("checkpoint", …).option("operator", …).load()       a table

Spark makes these objects in processes of their own, without a session: everything comes from the options
and from storage. What needs Arrow, NumPy or kernels is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from headrace.errors import QueryError
from headrace.spark.tables.options import TableOptions

if TYPE_CHECKING:
    import pyarrow as pa


class HeadraceSource(DataSource):  # type: ignore[misc]
    """State of a Headrace query.

    Options: ``checkpoint``; ``operator``; ``versionAsOf`` or ``asOfBatch``; ``changesFrom`` and
    ``changesTo``; ``accumulators``.
    """

    driver: ClassVar[tuple[str, str] | None] = (
        None  # address and secret of the coordinator, once registered
    )

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def __init__(self, options: Mapping[str, str]) -> None:
        self._table = TableOptions.of(options)

    def schema(self) -> StructType:
        from headrace.spark.tables.reader import open_table, operators_schema

        if self._table.operator is None:
            return spark_schema(operators_schema())
        return spark_schema(open_table(self._table).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.tables.reader import OperatorsReader, StateReader

        return OperatorsReader(self._table) if self._table.operator is None else StateReader(self._table)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.spark.tables.writer import StateWriter, refuse_running

        if self._table.operator is None:
            raise QueryError(
                "state is written operator by operator", hint='write .option("operator", "<name>")'
            )
        refuse_running(self._table.checkpoint, self.driver)
        return StateWriter.prepared(self._table, schema, overwrite)


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's schema of an Arrow schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    fields: Any = from_arrow_schema(schema)
    return fields
