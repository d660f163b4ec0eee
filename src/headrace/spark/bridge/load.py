"""Loading the JVM operator into a running session: `ADD JAR`, reflection, and a tiny query that probes it.

A session is probed once; what came of it stays on the session. Threads: the driver's.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import HeadraceError, QueryError
from headrace.plan.options import Bridge
from headrace.spark.bridge.jar import jar_for

log = logging.getLogger("headrace.bridge")

_KEPT_AS = "_headrace_bridge"
_CLASS = "org.apache.spark.sql.headrace.Bridge"


class LoadedBridge:
    """The jar's entry points in one session."""

    def __init__(self, spark: SparkSession, jar: Path) -> None:
        self._spark = spark
        add_jar(spark, jar)
        loaded = spark._jsparkSession.sharedState().jarClassLoader().loadClass(_CLASS)
        self._methods = {str(method.getName()): method for method in loaded.getMethods()}
        self.call("install", spark._jsparkSession)
        if self.call("probe", spark._jsparkSession) != 1:
            raise QueryError("the probe of the JVM operator returned another number of rows")

    def call(self, name: str, *arguments: Any) -> Any:
        context: Any = self._spark.sparkContext
        array = context._gateway.new_array(context._jvm.java.lang.Object, len(arguments))
        for index, argument in enumerate(arguments):
            array[index] = argument
        return self._methods[name].invoke(None, array)

    def place(self, rows: DataFrame, schema: str, settings: str) -> DataFrame:
        """The rows through an operator in the JVM."""
        return DataFrame(self.call("place", rows._jdf, schema, settings), self._spark)

    def first_batch(self, rows: DataFrame) -> DataFrame:
        """Rows of a batch DataFrame as a stream that has them in its first batch only."""
        return DataFrame(self.call("firstBatch", rows._jdf), self._spark)

    def pace(self, rows: DataFrame, settings: str) -> DataFrame:
        """The rows, with the batches that timers of user code above need."""
        return DataFrame(self.call("pace", rows._jdf, settings), self._spark)


def add_jar(spark: SparkSession, jar: Path) -> None:
    """Gives the jar to the driver and to all executors; some platforms forbid it."""
    spark.sql(f"ADD JAR '{jar}'")


def bridge_for(spark: SparkSession, wanted: Bridge) -> LoadedBridge | None:
    """The session's bridge; None for the Python path. `jvm` raises where it cannot be."""
    if wanted == "python":
        return None
    bridge: LoadedBridge | str | None = getattr(spark, _KEPT_AS, None)
    if bridge is None:
        bridge = probed(spark)
        setattr(spark, _KEPT_AS, bridge)
        if isinstance(bridge, str) and wanted == "auto":
            log.warning("operators run in Python workers: %s", bridge)
    if isinstance(bridge, LoadedBridge):
        return bridge
    if wanted == "jvm":
        raise QueryError(
            f"spark.headrace.bridge=jvm cannot be: {bridge}",
            hint="set spark.headrace.bridge to auto or python",
        )
    return None


def bridge_reason(spark: SparkSession, wanted: Bridge) -> str | None:
    """Why operators of the session run in Python workers; None where they run in the JVM."""
    if wanted == "python":
        return "spark.headrace.bridge=python"
    bridge: LoadedBridge | str | None = getattr(spark, _KEPT_AS, None)
    return bridge if isinstance(bridge, str) else None


def probed(spark: SparkSession) -> LoadedBridge | str:
    """The loaded bridge, or in one line why there is none."""
    try:
        return LoadedBridge(spark, find_jar(spark))
    except HeadraceError as error:
        return error.message
    except (Py4JError, PySparkException, AttributeError, KeyError, OSError) as error:
        return _reason(error)


def find_jar(spark: SparkSession) -> Path:
    import pyspark

    java_home = str(spark._jvm.java.lang.System.getProperty("java.home"))
    return jar_for(spark.version, java_home, Path(pyspark.__file__).parent)


def _reason(error: Exception) -> str:
    """The innermost cause of a failed call to the JVM, in one line."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        while java.getCause() is not None:
            java = java.getCause()
        return str(java.toString()).splitlines()[0]
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
