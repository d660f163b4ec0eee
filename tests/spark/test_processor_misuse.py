"""Protects users who misuse state: the same mistake fails with the same error class as in Spark."""

from __future__ import annotations

import decimal
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor_case import FAR, prepared, run, write_batches
from processor_classes import COUNTED, RunningCount
from pyspark.sql import SparkSession

import headrace as hr

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def engines(spark: SparkSession) -> Iterator[None]:
    with prepared(spark, sys.modules[__name__]):
        yield


class Misuse(RunningCount):
    """Makes one mistake."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.values = handle.getListState("values", "n long")
        self.price = handle.getValueState("price", "n decimal(5,2)")
        match self.mistake:
            case "twice":
                handle.getValueState("count", "n long")
            case "lifetime":
                handle.getValueState("other", "n long", 1000)
            case "negative lifetime":
                handle.getValueState("other", "n long", -5)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        match self.mistake:
            case "none":
                self.count.update(None)
            case "decimal":
                self.price.update((decimal.Decimal("12345.6"),))
            case "empty list":
                self.values.put([])
            case "empty append":
                self.values.appendList([])
            case "timer":
                self.handle.registerTimer(1)
            case "list timers":
                list(self.handle.listTimers())
        return iter(())


MISTAKES = [
    pytest.param("twice", "None", marks=pytest.mark.long),
    ("lifetime", "None"),
    pytest.param("negative lifetime", "ProcessingTime", marks=pytest.mark.long),
    ("none", "None"),
    ("decimal", "None"),
    ("empty list", "None"),
    pytest.param("empty append", "None", marks=pytest.mark.long),
    ("timer", "None"),
    pytest.param("list timers", "None", marks=pytest.mark.long),
]


def error_classes(text: str) -> set[str]:
    """Spark's error classes in a message, but for those of the query around it; types of Python's own."""
    named = set(re.findall(r"\[([A-Z_]{8,}(?:\.[A-Z_]+)?)\]", text))
    plain = set(re.findall(r"^(TypeError)\b", text, re.MULTILINE))
    return {one for one in named | plain if not one.startswith(("STREAM_FAILED", "FOREACH_BATCH"))}


@pytest.mark.parametrize(("mistake", "mode"), MISTAKES)
def test_mistakes_fail_as_in_spark(spark: SparkSession, tmp_path: Path, mistake: str, mode: str) -> None:
    write_batches(tmp_path / "in", [[{"id": "a", "v": 1, "ts": FAR}]])
    classes = []
    for name, keyed in (("ours", hr.stream), ("theirs", lambda df: df)):
        with pytest.raises(Exception) as failed:  # noqa: PT011 - the classes in the text are compared
            run(
                spark,
                tmp_path,
                name,
                lambda df, keyed=keyed: (
                    keyed(df).groupBy("id").transformWithState(Misuse(mistake), COUNTED, "Update", mode)
                ),
            )
        classes.append(error_classes(str(failed.value)) | error_classes(repr(failed.value)))
        print(name, str(failed.value)[:3000])
    assert classes[0], "ours names no class"
    assert classes[0] == classes[1]
