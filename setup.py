"""Builds the jar of the JVM operator into the wheel, where PySpark is there to compile it.

Everything else stands in pyproject.toml. A wheel without the jar works too: the driver compiles it once.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SOURCES = Path(__file__).parent / "src"


class BuildWithJar(build_py):
    """Compiles the Scala sources before package data is collected."""

    def run(self) -> None:
        command = [sys.executable, "-m", "headrace.jvm.build"]
        done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
            self.warn(f"the jar is not built: {reason}")
        super().run()


setup(cmdclass={"build_py": BuildWithJar})
