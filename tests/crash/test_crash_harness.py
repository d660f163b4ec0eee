"""Protects the crash harness itself: plans cover what they must, and the verdict sees what it must see."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.plan.options import COMMIT_MODES
from headrace.testing.crash import verdict as crash_verdict
from headrace.testing.crash.batches import NotAllRead, batches_as_read, ends_of
from headrace.testing.crash.input import FILES, Row, batches
from headrace.testing.crash.model import Expected, expected
from headrace.testing.crash.plan import PHASES, PHASES_BEHIND, STARTING, TARGETS, plan
from headrace.testing.crash.queries import ALL_KINDS, DELAY_US, KINDS, NARROW_US, Kind

SECOND = 1_000_000


def test_a_plan_is_a_function_of_its_seed() -> None:
    assert plan(11) == plan(11)
    assert batches(11) == batches(11)
    assert batches(11) != batches(12)


def test_another_query_or_mode_keeps_the_victims() -> None:
    for seed in range(30):
        drawn, other = plan(seed), plan(seed, "join", "async")
        assert (other.kind, other.commit) == ("join", "async")
        victims = [[(kill.target, kill.batch) for kill in round_.kills] for round_ in (drawn, other)]
        assert victims[0] == victims[1]


def test_plans_spread_over_targets_moments_queries_and_modes() -> None:
    plans = [plan(seed) for seed in range(144)]
    for seed, round_ in enumerate(plans):
        assert TARGETS[seed % 3] in [kill.target for kill in round_.kills]
    for seed in range(0, 144, 3):
        assert {round_.commit for round_ in plans[seed : seed + 3]} == set(COMMIT_MODES)
    kills = [(round_, kill) for round_ in plans for kill in round_.kills]
    assert {kill.batch for _, kill in kills} == set(range(STARTING, FILES))
    assert {kill.target for _, kill in kills} == {*TARGETS, "driver"}
    behind = {round_.commit != "sync": set[str]() for round_ in plans}
    for round_, kill in kills:
        behind[round_.commit != "sync"].add(kill.phase)
    assert behind == {False: set(PHASES), True: set(PHASES_BEHIND)}
    assert {(round_.kind, round_.commit, kill.target) for round_, kill in kills} >= {
        (kind, commit, target) for kind in KINDS for commit in COMMIT_MODES for target in TARGETS
    }


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_input_has_what_the_rounds_are_about(kind: Kind) -> None:
    outcome = expected(kind, batches(5))
    assert sum(map(bool, outcome.emitted)) >= 3
    assert all(outcome.state.values())
    if kind in KINDS and kind not in ("running", "processor"):
        assert outcome.late_rows["narrow"] > 0
    if kind == "late":
        given = Counter(row[:3] for output in outcome.emitted for row in output)
        assert max(given.values()) > 1
    if kind in ("join", "session_join"):
        rows = [row for output in outcome.emitted for row in output]
        assert any(row[0] is None for row in rows)
        assert {(row[-4] is None, row[-2] is None) for row in rows} == {
            (False, False),
            (True, False),
            (False, True),
        }


def _row(second: float, amount: float | None = 0.5, bid: int = 7, user: str | None = "u") -> Row:
    return Row(user, 1, int(second * SECOND), amount, bid, "n")


LATE, CLOSING = NARROW_US // SECOND - 1, (NARROW_US + DELAY_US) // SECOND


def test_the_model_by_hand() -> None:
    outcome = expected("window", [[_row(0), _row(LATE)], [_row(CLOSING)], [_row(LATE), _row(CLOSING)]])
    assert outcome.emitted == [Counter(), Counter([("u", 1, 0, 2, 1.0, 7, "n")]), Counter()]
    assert outcome.late_rows == {"narrow": 1}
    assert outcome.state == {"narrow": Counter([("u", 1, NARROW_US, 2, 1.0, 7, "n")])}


def test_a_running_aggregate_by_hand() -> None:
    outcome = expected("running", [[_row(0), _row(9, None, 8)], [_row(1, user=None)]])
    groups = [("u", 1, 2, 0.5, 8, "n"), (None, 1, 1, 0.5, 7, "n")]
    assert outcome.emitted == [Counter(groups[:1]), Counter(groups[1:])]
    assert outcome.state == {"running": Counter(groups)}


def test_chained_windows_by_hand() -> None:
    outcome = expected("chained", [[_row(0), _row(31)], [_row(41)], [_row(71)]])
    assert outcome.emitted == [Counter(), Counter(), Counter([("u", 0, 3, 1.5, 7, "n")])]
    assert outcome.state == {
        "narrow": Counter([("u", 1, 2 * NARROW_US, 1, 0.5, 7, "n")]),
        "wide": Counter(),
    }


def test_sliding_windows_by_hand() -> None:
    """A row that comes when one of its three windows is closed is in the other two, and not late."""
    outcome = expected("sliding", [[_row(25)], [_row(41), _row(5)], [_row(9), _row(12)]])
    assert [{row[2] // SECOND: row[3] for row in output} for output in outcome.emitted] == [
        {},
        {-10: 1, 0: 2},
        {},
    ]
    assert outcome.late_rows == {"narrow": 1}
    state = {row[2] // SECOND: row[3] for row in outcome.state["narrow"]}
    assert state == {10: 2, 20: 2, 30: 1, 40: 1}


@pytest.mark.parametrize("kind", ["session", "session_median"])
def test_sessions_by_hand(kind: Kind) -> None:
    """Two sessions become one; a row whose own session is over is late, though it touches an open one."""
    outcome = expected(kind, [[_row(0), _row(7), _row(3.5)], [_row(20)], [_row(5), _row(9)], [_row(30)]])
    assert not any(outcome.emitted[:3])
    assert outcome.late_rows == {"narrow": 1}
    spans = [
        {(row[2] / SECOND, row[3] / SECOND, row[4]) for row in output}
        for output in (outcome.emitted[3], outcome.state["narrow"])
    ]
    assert spans == [{(0, 13, 4)}, {(20, 24, 1), (30, 34, 1)}]


def test_lateness_by_hand() -> None:
    """A window comes again for a row within its lateness; a window that never came is the state."""
    outcome = expected(
        "late", [[_row(12), _row(38)], [_row(15), _row(52)], [_row(14), _row(58)], [_row(16)]]
    )
    given = [{row[2] // SECOND: row[3] for row in output} for output in outcome.emitted]
    assert given == [{-13: 1, -3: 1, 7: 1}, {-3: 2, 7: 2, 17: 1}, {7: 3, 27: 2}, {}]
    assert outcome.late_rows == {"narrow": 1}
    assert {row[2] // SECOND: row[3] for row in outcome.state["narrow"]} == {37: 3, 47: 2, 57: 1}


def test_a_join_over_sessions_by_hand() -> None:
    """Rows of both streams make one session."""
    rows = [_row(0, bid=1), _row(3, 0.25, bid=-1), _row(6, bid=2)]
    outcome = expected("session_join", [rows, [_row(30)], [_row(30, bid=-7)]])
    assert outcome.emitted[2] == Counter(("u", 1, 0, 10 * SECOND, bid, "n", -1, 0.25) for bid in (1, 2))


def test_ranks_by_hand() -> None:
    rows = [_row(3, 1.0, bid=1), _row(2, 4.0, bid=2), _row(2, None, bid=3)]
    assert expected("median", [rows]).state == {"narrow": Counter([("u", 1, 0, 3, 2.5, (2, 3, 1))])}


def test_a_join_by_hand() -> None:
    """A window closes when both streams have passed it; a null key is equal to nothing."""
    rows = [_row(0, bid=1), _row(1, bid=2), _row(2, 0.25, bid=-1)]
    alone = [_row(0, bid=5, user=None), _row(0, bid=-5, user=None)]
    outcome = expected("join", [rows + alone, [_row(CLOSING)], [_row(CLOSING, bid=-7)]])
    assert outcome.emitted[1] == Counter()
    assert outcome.emitted[2] == Counter(
        [
            ("u", 1, 0, 1, "n", -1, 0.25),
            ("u", 1, 0, 2, "n", -1, 0.25),
            (None, 1, 0, 5, "n", None, None),
            (None, 1, 0, None, None, -5, 0.5),
        ]
    )


def test_a_function_by_hand() -> None:
    outcome = expected("apply", [[_row(0, 2.0), _row(1)], [_row(CLOSING, None)]])
    assert outcome.emitted[1] == Counter([("u", 1, 0, 2, 1.5, "n|n")])
    assert outcome.state == {"narrow": Counter([("u", 1, NARROW_US, CLOSING * SECOND, None, 7, "n")])}


def test_a_file_that_spark_had_noted_joins_the_next_batch(tmp_path: Path) -> None:
    """Killed between its source's log and the batch's offsets, Spark puts two files into one batch."""
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for number, ends in enumerate([(0, 0), (2, 1), (3, 3)]):
        lines = [json.dumps({"logOffset": end}) for end in ends]
        (offsets / str(number)).write_text("\n".join(["v1", "{}", *lines]))
    (offsets / ".2.crc").touch()
    files = [[_row(number, bid=1), _row(number, bid=-1)] for number in range(4)]
    read = batches_as_read(files, ends_of(tmp_path))
    assert [[(row.ts_us // SECOND, row.bid) for row in batch] for batch in read] == [
        [(0, 1), (0, -1)],
        [(1, 1), (2, 1), (1, -1)],
        [(3, 1), (2, -1), (3, -1)],
    ]
    with pytest.raises(NotAllRead, match="of 5 files"):
        batches_as_read([*files, files[0]], ends_of(tmp_path))


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
    ("rows", "parts"),
    [
        ([("a", 1), ("b", 2)], []),
        ([("a", 1)], ["1 rows missing, 0 too many"]),
        ([("a", 1), ("b", 2), ("b", 2)], ["0 rows missing, 1 too many"]),
        ([("a", 1), ("b", 3)], ["1 rows missing, 1 too many"]),
    ],
)
def test_the_verdict_sees_losses_and_doubles(
    tmp_path: Path, rows: list[tuple[str, int]], parts: list[str]
) -> None:
    _sink(tmp_path, rows)
    model = Expected(emitted=[Counter([("a", 1), ("b", 2)])])
    problems = crash_verdict.output_problems(tmp_path, model)
    assert len(problems) == len(parts)
    assert all(part in line for part, line in zip(parts, problems, strict=True))


def test_the_verdict_sees_what_is_left_in_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "seed-1"
    (folder / "ck").mkdir(parents=True)
    (folder / "ck" / "metadata").write_text(json.dumps({"id": "mine"}))
    for query, name in [
        ("mine", f"v{FILES - 1:012d}-r00000001-a000000000001.log"),
        ("mine", "segments/v000000000003-r00000001-a000000000001-s000000.segment"),
        ("other", "v000000000003-r00000001-a000000000001.log"),
    ]:
        path = tmp_path / "local" / "log" / "0123" / query / "narrow" / "p0000" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (line,) = crash_verdict.log_problems(folder, FILES)
    assert "mine/narrow/p0000/segments/v000000000003" in line
