"""Protects the crash harness itself: plans cover what they must, and the verdict sees what it must see."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.testing import crash_verdict
from headrace.testing.crash_input import FILES, Row, batches
from headrace.testing.crash_model import Expected, expected
from headrace.testing.crash_plan import PHASES, STARTING, TARGETS, plan
from headrace.testing.crash_queries import DELAY_US, KINDS, NARROW_US

SECOND = 1_000_000


def test_a_plan_is_a_function_of_its_seed() -> None:
    assert plan(11) == plan(11)
    assert batches(11) == batches(11)
    assert batches(11) != batches(12)


def test_plans_spread_over_targets_moments_and_queries() -> None:
    plans = [plan(seed) for seed in range(200)]
    for seed, round_ in enumerate(plans):
        assert TARGETS[seed % 3] in [kill.target for kill in round_.kills]
    assert {kill.batch for round_ in plans for kill in round_.kills} == set(range(STARTING, FILES))
    assert {kill.phase for round_ in plans for kill in round_.kills} == set(PHASES)
    assert {kill.target for round_ in plans for kill in round_.kills} == {*TARGETS, "driver"}
    assert {(round_.kind, kill.target) for round_ in plans for kill in round_.kills} >= {
        (kind, target) for kind in KINDS for target in TARGETS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_input_has_what_the_rounds_are_about(kind: str) -> None:
    found = expected(kind, batches(5))  # type: ignore[arg-type]
    assert sum(map(bool, found.emitted)) >= 3
    assert all(found.state.values())
    if kind != "running":
        assert found.late_rows["narrow"] > 0


def _row(second: int, amount: float = 0.5) -> Row:
    return Row("u", 1, second * SECOND, amount, 7, "n")


def test_the_model_by_hand() -> None:
    late = NARROW_US // SECOND - 1
    closing = (NARROW_US + DELAY_US) // SECOND
    found = expected("window", [[_row(0), _row(late)], [_row(closing)], [_row(late), _row(closing)]])
    assert found.emitted == [Counter(), Counter([("u", 1, 0, 2, 1.0, 7, "n")]), Counter()]
    assert found.late_rows == {"narrow": 1}
    assert [totals.n for totals in found.state["narrow"].values()] == [2]


def _sink(folder: Path, rows: list[tuple[str, int]]) -> None:
    """What Spark's file sink leaves for batch 0; a file that its log does not name is no output."""
    metadata = folder / "out" / "_spark_metadata"
    metadata.mkdir(parents=True)
    table = pa.table({"k": [row[0] for row in rows], "n": [row[1] for row in rows]})
    pq.write_table(table, folder / "out" / "part 0.parquet")
    pq.write_table(table, folder / "out" / "leftover.parquet")
    entry = {"path": (folder / "out" / "part 0.parquet").as_uri(), "action": "add"}
    (metadata / "0").write_text("v1\n" + json.dumps(entry))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("a", 1), ("b", 2)], []),
        ([("a", 1)], ["1 rows missing, 0 too many"]),
        ([("a", 1), ("b", 2), ("b", 2)], ["0 rows missing, 1 too many"]),
        ([("a", 1), ("b", 3)], ["1 rows missing, 1 too many"]),
    ],
)
def test_the_verdict_sees_losses_and_doubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, int]], said: list[str]
) -> None:
    monkeypatch.setattr(crash_verdict, "FILES", 1)
    _sink(tmp_path, rows)
    model = Expected(emitted=[Counter([("a", 1), ("b", 2)])])
    found = crash_verdict._output_problems(tmp_path, model)
    assert len(found) == len(said)
    assert all(part in line for part, line in zip(said, found, strict=True))
