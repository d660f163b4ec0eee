"""Protects the state against its storage: what is missing or damaged stops the query with an error that
names the file, the version and the remedy. Never a silent restart from empty.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from streaming_case import FOURTH, Case

pytestmark = pytest.mark.spark

NEWEST = "v000000000002-*"


def newest(case: Case, kind: str) -> list[Path]:
    """The newest version's files of all partitions."""
    paths = sorted(case.state.glob(f"*/totals/p*/{kind}s/{NEWEST}.{kind}"))
    assert paths
    return paths


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0x10
    path.write_bytes(bytes(data))


def test_without_damage_it_goes_on(copy: Case) -> None:
    assert copy.run(copy.totals()) == FOURTH


def lose_location(case: Case) -> list[str]:
    shutil.rmtree(case.state)
    return [str(case.state)]


def lose_newest_version(case: Case) -> list[str]:
    for path in newest(case, "manifest"):
        path.unlink()
    return ["version 2 is missing", str(case.state), "versions there: 0, 1"]


def lose_partition(case: Case) -> list[str]:
    for folder in case.state.glob("*/totals/p*"):
        shutil.rmtree(folder)
    return ["version 2 is missing", "no version is there"]


def lose_runs(case: Case) -> list[str]:
    for folder in case.state.glob("*/runs"):
        shutil.rmtree(folder)
    return ["lost its runs", "backup"]


def lose_segment(case: Case) -> list[str]:
    for path in case.state.glob("*/totals/p*/segments/v000000000000-*"):
        path.unlink()
    return ["segment ", "is missing: version 2 needs it", "v000000000000-"]


def cut_segment(case: Case) -> list[str]:
    for path in newest(case, "segment"):
        path.write_bytes(path.read_bytes()[:-40])
    return ["segment ", "bytes, and", "in version 2", "v000000000002-"]


def flip_segment_rows(case: Case) -> list[str]:
    for path in case.state.glob("*/totals/p*/segments/*.segment"):
        flip(path, 0.3)
    return ["segment", str(case.state), "checksum"]


def flip_segment_end(case: Case) -> list[str]:
    for path in newest(case, "segment"):
        flip(path, 0.97)
    return ["segment", str(case.state), "v000000000002-"]


def flip_manifest(case: Case) -> list[str]:
    for path in newest(case, "manifest"):
        flip(path, 0.5)
    return ["manifest", str(case.state), "v000000000002-"]


def cut_manifest(case: Case) -> list[str]:
    for path in newest(case, "manifest"):
        path.write_bytes(path.read_bytes()[:30])
    return ["manifest", str(case.state), "v000000000002-"]


def older_manifest_under_newest_name(case: Case) -> list[str]:
    for path in newest(case, "manifest"):
        older = next(path.parent.glob("v000000000001-*"))
        path.write_bytes(older.read_bytes())
    return ["holds the manifest of version 1", "v000000000002-"]


def lose_operator(case: Case) -> list[str]:
    for path in case.state.glob("*/totals/operator.json"):
        path.unlink()
    return ["operator.json", str(case.state)]


def lose_record(case: Case) -> list[str]:
    shutil.rmtree(records(case))
    return ["operator totals has no record at batch 3", "headrace-operators/totals.log"]


def cut_record(case: Case) -> list[str]:
    path = max(records(case).iterdir())
    path.write_bytes(path.read_bytes()[:-40])
    return [f"{path} is damaged", "it was cut short"]


def flip_record(case: Case) -> list[str]:
    """One bit of the last batch's number: the record would name an older base."""
    path = max(records(case).iterdir())
    assert b'"begun":[0,1,2]' in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(b'"begun":[0,1,2]', b'"begun":[0,1,3]'))
    return [f"{path} is damaged", "its checksum does not match"]


def no_text_in_record(case: Case) -> list[str]:
    path = max(records(case).iterdir())
    path.write_bytes(path.read_bytes().replace(b"begun", b"be\xe7un"))
    return [f"{path} is damaged", "its checksum does not match"]


def break_old_record(case: Case) -> list[str]:
    shutil.rmtree(records(case))
    old = records(case).with_suffix(".json")
    old.write_bytes(b'{"format": 1, "location": "\xff')
    return ["headrace-operators/totals.json is not a Headrace operator record"]


def records(case: Case) -> Path:
    return case.checkpoint / "headrace-operators" / "totals.log"


DAMAGES = [
    lose_location,
    pytest.param(lose_newest_version, marks=pytest.mark.long),
    lose_partition,
    lose_runs,
    lose_segment,
    cut_segment,
    flip_segment_rows,
    pytest.param(flip_segment_end, marks=pytest.mark.long),
    pytest.param(flip_manifest, marks=pytest.mark.long),
    cut_manifest,
    older_manifest_under_newest_name,
    lose_operator,
    lose_record,
    cut_record,
    flip_record,
    no_text_in_record,
    break_old_record,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_stops_the_query(copy: Case, damage: Callable[[Case], list[str]]) -> None:
    named = damage(copy)
    before = files_of(copy)
    refusal = copy.refusal(copy.totals())
    for part in [*named, "→"]:
        assert part in refusal
    assert before.items() <= files_of(copy).items()


def files_of(case: Case) -> dict[str, bytes]:
    """All files of the state; of partitions that are intact more may come, none may change."""
    return case.files() if case.state.exists() else {}


def test_state_removed_under_a_running_host(case: Case) -> None:
    case.feed(("a", 0, 1.0), ("b", 0, 1.0), ("c", 0, 1.0))
    case.run(case.totals())
    shutil.rmtree(case.state)
    case.feed(("a", 1, 1.0), ("b", 0, 1.0), ("c", 0, 1.0))
    refusal = case.refusal(case.totals())
    assert str(case.state) in refusal
    assert "→" in refusal
