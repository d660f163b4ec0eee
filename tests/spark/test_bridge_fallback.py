"""Protects the way back to Python workers: where the JVM operator cannot be loaded, queries run and the log
names the reason. A checkpoint goes on after the bridge changed, or is refused by name.
"""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from streaming_case import FOURTH, Case, finished_case
from test_bridge import settings

from headrace.errors import QueryError
from headrace.jvm.build import LABEL, jar_path, label_of
from headrace.spark.bridge import jar, load
from headrace.spark.build.explain import explained

pytestmark = pytest.mark.spark


@pytest.fixture
def fresh(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Case:
    """A session that has not been probed, with an empty cache and no compiler."""
    session = case.spark.newSession()
    session.conf.set("spark.headrace.bridge", "auto")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Case(session, case.inputs, case.checkpoint)


def refused(*_: object) -> Path:
    raise RuntimeError("no compiler here")


def runs_in_python(case: Case, caplog: pytest.LogCaptureFixture, reason: str) -> None:
    case.feed(("a", 1, 1.0))
    with caplog.at_level(logging.WARNING, logger="headrace.bridge"):
        totals = case.totals()
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.bridge"]
    assert len(lines) == 1
    assert reason in lines[0]
    assert f"in Python workers: {lines[0].partition(': ')[2]}" in explained(totals)
    assert case.run(totals) == [(0, "a", 1, 1.0)]
    with settings(case.spark, bridge="jvm"), pytest.raises(QueryError, match="bridge=jvm cannot be"):
        case.totals()


def test_no_jar(fresh: Case, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "jar_path", lambda *_: Path("/nowhere.jar"))
    monkeypatch.setattr(jar, "build", refused)
    runs_in_python(fresh, caplog, "no jar for Spark")


def test_a_jar_for_another_version(
    fresh: Case, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other.jar"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr(LABEL, '{"spark": "4.0", "sources": "0"}')
    monkeypatch.setattr(jar, "jar_path", lambda *_: other)
    monkeypatch.setattr(jar, "build", refused)
    runs_in_python(fresh, caplog, "no jar for Spark")


def test_add_jar_is_refused(
    fresh: Case, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AnalysisException("ADD JAR is not allowed on this platform")

    monkeypatch.setattr(load, "add_jar", refuse)
    runs_in_python(fresh, caplog, "ADD JAR is not allowed")


def test_a_class_that_does_not_link(
    fresh: Case, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_CLASS", "org.apache.spark.sql.headrace.Missing")
    runs_in_python(fresh, caplog, "ClassNotFoundException")


def test_an_unknown_minor_is_compiled_once_into_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[Path] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def build(path: Path, *_: object) -> Path:
        built.append(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            digest = jar.sources_digest()
            archive.writestr(LABEL, f'{{"spark": "4.9", "sources": "{digest}"}}')
        return path

    monkeypatch.setattr(jar, "build", build)
    first = jar.jar_for("4.9.1", "/java", tmp_path)
    assert jar.jar_for("4.9.1", "/java", tmp_path) == first
    assert built == [first]
    with pytest.raises(jar.NoJar, match="Spark 3"):
        jar.jar_for("3.5.0", "/java", tmp_path)


def test_the_package_has_the_jar_of_this_spark(spark: SparkSession) -> None:
    label = label_of(jar_path(spark.version))
    assert label is not None
    assert label.sources == jar.sources_digest()


def test_a_checkpoint_of_python_workers_goes_on_in_the_jvm(spark: SparkSession, tmp_path: Path) -> None:
    with settings(spark, bridge="python"):
        case = finished_case(spark, tmp_path)
    with settings(spark, bridge="jvm"):
        assert case.run(case.totals()) == FOURTH
        case.feed(("a", 40, 1.0))
        assert case.run(case.totals()) == [(4, "a", 5, 3.75)]
    with settings(spark, bridge="python"):
        case.feed(("a", 41, 1.0))
        assert case.run(case.totals()) == [(5, "a", 6, 4.75)]


def test_a_checkpoint_of_the_jvm_is_refused_in_python_workers(spark: SparkSession, tmp_path: Path) -> None:
    with settings(spark, bridge="jvm"):
        case = finished_case(spark, tmp_path)
    with settings(spark, bridge="python"):
        assert "headrace:totals" in case.refusal(case.totals())
    with settings(spark, bridge="jvm"):
        assert case.run(case.totals()) == FOURTH
