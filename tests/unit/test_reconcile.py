"""Protects the repair after a lost machine: one batch is taken back, or nothing is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.recovery.reconcile import OperatorFound, decide, numbers, withdraw


def operator(begun: tuple[int, ...], **missing: tuple[int, ...]) -> OperatorFound:
    return OperatorFound("sums", begun, {int(name[1:]): partitions for name, partitions in missing.items()})


def test_a_fresh_query_is_left_alone() -> None:
    assert decide(None, [0], [operator((0,), v0=(0,))]).action == "nothing"


def test_complete_state_is_left_alone() -> None:
    assert decide(3, [3, 4], [operator((2, 3, 4), v3=(), v2=())]).action == "nothing"


def test_state_ahead_of_spark_is_left_alone() -> None:
    """Batch 4 ran and was never committed: it runs again from 3."""
    assert decide(3, [4], [operator((3, 4), v3=(), v4=(0,))]).action == "nothing"


def test_one_missing_batch_is_taken_back_with_the_plans_after_it() -> None:
    decision = decide(3, [2, 3, 4], [operator((2, 3, 4), v3=(1, 5), v2=())])
    assert (decision.action, decision.batch, decision.offsets) == ("withdraw", 3, (4,))
    assert "sums partitions 1, 5" in decision.reason


def test_the_very_first_batch_can_be_taken_back() -> None:
    decision = decide(0, [0], [operator((0,), v0=(0,))])
    assert (decision.action, decision.batch, decision.offsets) == ("withdraw", 0, ())


def test_two_missing_batches_are_refused() -> None:
    assert decide(3, [3], [operator((2, 3), v3=(0,), v2=(0,))]).action == "refuse"


def test_a_batch_that_spark_has_gone_past_is_refused() -> None:
    """The operator had no rows in batch 3; replaying 2 would need 3 to be planned again."""
    decision = decide(3, [3], [operator((1, 2), v2=(0,), v1=())])
    assert decision.action == "refuse"
    assert "batch 2" in decision.reason


def test_an_operator_that_has_its_state_must_be_able_to_go_back_too() -> None:
    lost, intact = operator((2, 3), v3=(0,), v2=()), OperatorFound("other", (2, 3), {3: (), 2: (0,)})
    assert decide(3, [3], [lost, intact]).action == "refuse"


def test_an_operator_that_sat_the_batch_out_does_not_matter() -> None:
    other = OperatorFound("other", (1,), {1: ()})
    assert decide(3, [3], [operator((2, 3), v3=(0,), v2=()), other]).action == "withdraw"


def test_withdrawing_moves_entries_and_their_checksums_aside(tmp_path: Path) -> None:
    for name in ("commits/2", "commits/3", "commits/.3.crc", "offsets/3", "offsets/4", "offsets/.4.crc"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    files = LocalFiles(f"file:{tmp_path}")
    decision = decide(3, numbers(files, "offsets"), [operator((2, 3), v3=(0,), v2=())])
    assert withdraw(files, decision) == ["offsets/4", "commits/3"]
    assert (numbers(files, "commits"), numbers(files, "offsets")) == ([2], [3])
    kept = tmp_path / "headrace-withdrawn"
    assert (kept / "commits" / "3").read_text() == "commits/3"
    assert not list(tmp_path.glob("[co]*/.*.crc"))


@pytest.mark.parametrize("name", ["", "metadata"])
def test_the_command_refuses_what_is_no_checkpoint(tmp_path: Path, name: str) -> None:
    from headrace.cli.recover import recover

    if name:
        (tmp_path / name).write_text(json.dumps({"id": "q"}))
    lines: list[str] = []
    assert recover(str(tmp_path), tmp_path / "local", True, lines.append) == (0 if name else 2)
    assert "nothing to do" in lines[-1] if name else "not a checkpoint" in lines[0]
