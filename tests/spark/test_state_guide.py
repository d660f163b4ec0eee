"""Protects the guide to state: every Python example of docs/state.md runs, in its order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from streaming_case import Case
from test_state_tables import plain, state

import headrace as hr

pytestmark = pytest.mark.spark

GUIDE = Path(__file__).parents[2] / "docs" / "state.md"


def test_the_examples_run(case: Case, tmp_path: Path) -> None:
    case.feed(("ann", 0, 1.0), ("bob", 1, 2.0))
    case.feed(("ann", 2, 3.0))
    case.run(case.totals())
    past = tmp_path / "past"
    case.spark.createDataFrame([("ann", 9, 0.5)], "user string, n long, total double").write.parquet(
        str(past)
    )
    names = {
        "F": F,
        "hr": hr,
        "spark": case.spark,
        "events": case.source(),
        "checkpoint": str(case.checkpoint),
        "new_checkpoint": str(tmp_path / "new"),
        "past_totals": str(past),
    }
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(examples) >= 6
    for example in examples:
        exec(compile(example, str(GUIDE), "exec"), names)
    assert names["frame"].to_dict("records") == [{"user": "ann", "n": 2, "total": 4.0}]
    assert plain(state(case, operator="totals")) == [("ann", 0, 0.0), ("bob", 1, 2.0)]
    assert (tmp_path / "new" / "headrace-operators" / "totals.log").exists()
