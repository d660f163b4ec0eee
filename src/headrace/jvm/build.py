"""Builds the jar of the Scala sources with the Scala compiler that PySpark ships; a Java runtime is enough.

`python -m headrace.jvm.build` writes `jars/headrace-spark-<minor>.jar` beside this file. The jar's entry
`headrace.json` names the Spark version and a digest of the sources, so that a stale or foreign jar is known
before it is loaded. Two builds of the same sources give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "scala"
JARS = Path(__file__).parent / "jars"
LABEL = "headrace.json"


@dataclass(frozen=True)
class Label:
    """What a jar was built for and from."""

    spark: str  # minor version, such as 4.3
    sources: str  # digest


def minor_of(version: str) -> str:
    """`4.3` of `4.3.0`."""
    return ".".join(version.split(".")[:2])


def sources_digest(folder: Path = SOURCES) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.scala")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def label_of(jar: Path) -> Label | None:
    """The label of a jar; None when it is not one of ours or not there."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return Label(**json.loads(archive.read(LABEL)))
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile):
        return None


def jar_path(version: str, folder: Path = JARS) -> Path:
    return folder / f"headrace-spark-{minor_of(version)}.jar"


def build(jar: Path, spark_home: Path, version: str, java: str = "java") -> Path:
    """Compile the sources against the jars of `spark_home` and put the classes into `jar`."""
    sources = sorted(str(path) for path in SOURCES.glob("*.scala"))
    with tempfile.TemporaryDirectory(prefix="headrace-scalac-") as classes:
        command = [java, "-Xmx1g", "-cp", f"{spark_home}/jars/*", "scala.tools.nsc.Main"]
        command += ["-usejavacp", "-release", "17", "-d", classes, *sources]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"scalac failed:\n{done.stdout}{done.stderr}")
        _zip(Path(classes), jar, Label(minor_of(version), sources_digest()))
    return jar


def _zip(classes: Path, jar: Path, label: Label) -> None:
    """Write the jar under a temporary name first; names are sorted and times fixed."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    temporary = jar.with_name(f".{jar.name}.{os.getpid()}")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(LABEL), json.dumps(vars(label), sort_keys=True))
        for path in sorted(classes.rglob("*.class")):
            info = zipfile.ZipInfo(path.relative_to(classes).as_posix())
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    temporary.replace(jar)


def java_command() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def main() -> int:
    """Build the jar of the installed PySpark, unless it is there and up to date."""
    import pyspark

    jar = jar_path(pyspark.__version__)
    if label_of(jar) == Label(minor_of(pyspark.__version__), sources_digest()):
        return 0
    print(f"building {jar.name} with scalac", file=sys.stderr)
    build(jar, Path(pyspark.__file__).parent, pyspark.__version__, java_command())
    return 0


if __name__ == "__main__":
    sys.exit(main())
