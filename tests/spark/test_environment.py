"""Protects the README's first script: an environment that is not activated runs workers and host too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from pyspark.sql import SparkSession
import headrace as hr

folder, bridge = sys.argv[1:]
spark = (SparkSession.builder.master("local[1]").config("spark.headrace.bridge", bridge)
         .config("spark.headrace.partitions", 1).config("spark.headrace.state.local", folder + "/local")
         .config("spark.ui.enabled", "false").getOrCreate())
spark.range(5).write.parquet(folder + "/in")
rows = spark.readStream.schema("id LONG").parquet(folder + "/in")
counts = hr.stream(rows).groupBy("id").agg(n=hr.count())
query = (counts.writeStream.format("parquet").option("path", folder + "/out").outputMode("append")
         .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start())
query.awaitTermination()
print("rows:", spark.read.parquet(folder + "/out").count())
"""


@pytest.mark.parametrize("bridge", ["jvm", "python"])
def test_the_drivers_environment_runs_a_local_session(tmp_path: Path, bridge: str) -> None:
    """The first `python3` of the path cannot run anything."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    environment["PATH"] = f"{other.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), bridge],
        capture_output=True,
        check=False,
        env=environment,
        text=True,
    )
    assert "rows: 5" in done.stdout, done.stderr[-4000:]
