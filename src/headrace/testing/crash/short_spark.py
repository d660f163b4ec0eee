"""Settings for a Spark that runs a few small queries: compilation would cost more than it saves."""

from __future__ import annotations

from collections.abc import Mapping

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: Mapping[str, str] = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
