"""The data source in a form that a Python without this package can load, and answer with one sentence."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


def shipped(driver: tuple[str, str]) -> type[DataSource]:
    """The source `headrace` of a session; `driver` is the address and the secret of its coordinator.

    Spark ships the class by value, so its methods name nothing of this module.
    """

    class HeadraceSource(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls):  # type: ignore[no-untyped-def]
            return "headrace"

        def __init__(self, options):  # type: ignore[no-untyped-def]
            import socket
            import sys

            try:
                from headrace.spark.tables import source
            except ImportError as error:
                raise RuntimeError(
                    f"format headrace: Python {sys.executable} on {socket.gethostname()} lacks Headrace "
                    f"({error}). Install it there (pip install headrace), or set PYSPARK_PYTHON to a "
                    "Python that has it."
                ) from None
            kind = type("HeadraceSource", (source.HeadraceSource,), {"driver": driver})
            self._source = kind(options)

        def schema(self):  # type: ignore[no-untyped-def]
            return self._source.schema()

        def reader(self, schema):  # type: ignore[no-untyped-def]
            return self._source.reader(schema)

        def writer(self, schema, overwrite):  # type: ignore[no-untyped-def]
            return self._source.writer(schema, overwrite)

    return HeadraceSource
