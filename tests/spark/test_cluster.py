"""Protects Headrace on several executors: the same results, one host per machine or one per executor, and
partitions that stay where they are while batches travel to them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.errors import StateMissing
from headrace.testing.crash.input import batches, write_input
from headrace.testing.crash.model import Expected, expected
from headrace.testing.crash.queries import Kind
from headrace.testing.crash.verdict import emitted, plain_rows
from headrace.testing.state_reader import StateAt, read_state

pytestmark = pytest.mark.spark

SEED = 21
FILES = 5
REDO_FILES = 3


@pytest.fixture(scope="module", params=["jvm", pytest.param("python", marks=pytest.mark.long)])
def bridge(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, bridge: str) -> tuple[Path, dict[str, Any]]:
    """The folder of a finished cluster, and what its driver saw."""
    folder = tmp_path_factory.mktemp("cluster")
    write_input(folder / "in", SEED, FILES)
    return folder, driven(folder, bridge=bridge)


def driven(folder: Path, *how: str, bridge: str = "jvm") -> dict[str, Any]:
    """Runs the program: its report."""
    (folder / "work").mkdir()
    program = Path(__file__).with_name("cluster_program.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder), *how],
        cwd=folder / "work",
        capture_output=True,
        env={**os.environ, "HEADRACE_TEST_BRIDGE": bridge},
        text=True,
        check=False,
    )
    failure = done.stderr[done.stderr.rfind("Traceback") :]
    assert done.returncode == 0, f"{failure[:6000]}\n…\n{done.stderr[-2000:]}"
    report: dict[str, Any] = json.loads((folder / "said.json").read_text())
    return report


def model(kind: Kind) -> Expected:
    return expected(kind, batches(SEED)[:FILES])


@pytest.mark.parametrize("kind", ["window", "running"])
def test_two_executors_find_what_one_finds(ran: tuple[Path, dict[str, Any]], kind: Kind) -> None:
    folder, report = ran
    for batch, wanted in enumerate(model(kind).emitted):
        assert emitted(folder / kind, batch) == wanted
    for operator, groups in model(kind).state.items():
        state = read_state(
            folder / kind / "ck" / "headrace-state", report[kind]["query"], operator, FILES - 1
        )
        assert Counter(plain_rows(state)) == groups


@pytest.mark.parametrize("kind", ["window", "running"])
def test_executors_of_one_machine_share_its_host(ran: tuple[Path, dict[str, Any]], kind: Kind) -> None:
    (host,) = ran[1][kind]["hosts"]
    assert host["partitions"] == [0, 1, 2]


def test_with_a_host_per_executor_partitions_stay_and_batches_travel(
    ran: tuple[Path, dict[str, Any]], bridge: str
) -> None:
    folder, report = ran
    hosts = report["travelling"]["hosts"]
    assert len(hosts) == 2
    assert all(host["addresses"]["tcp"].startswith("grpc+tcp://127.0.0.1:") for host in hosts)
    assert sorted(number for host in hosts for number in host["partitions"]) == [0, 1, 2]
    owner = {number: host["machine"] for host in hosts for number in host["partitions"]}
    paths = sorted((folder / "travelling" / "out").glob("*.parquet"))
    batches_of = {(str(path), row["partition"], row["executor"]) for path in paths for row in read(path)}
    away = [one for one in batches_of if owner[one[1]] != one[2]]
    if bridge == "python":
        assert away, "Spark places Python tasks anywhere"
    else:
        assert len(away) <= 0.05 * len(batches_of), "tasks run where their state is"


def read(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def test_results_are_the_same_wherever_the_state_is(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, report = ran
    for batch, wanted in enumerate(model("running").emitted):
        got = emitted(folder / "travelling", batch)
        assert Counter(row[:-2] for row in got.elements()) == wanted
    location = folder / "travelling" / "ck" / "headrace-state"
    state = read_state(location, report["travelling"]["query"], "running", FILES - 1)
    assert Counter(plain_rows(state)) == model("running").state["running"]


@pytest.mark.long
def test_another_host_goes_on_from_the_log_of_one_that_died_with_its_executor(tmp_path: Path) -> None:
    write_input(tmp_path / "in", SEED, 1)
    write_input(tmp_path / "more", SEED, REDO_FILES)
    report = driven(tmp_path, "redo")
    assert report["published"] == [], "the hosts died between the two acknowledgements"
    assert sum(len(host["partitions"]) for host in report["before"]) == 3
    assert report["dead"] not in [host["machine"] for host in report["hosts"]]
    wanted = expected("running", batches(SEED)[:REDO_FILES])
    for batch, rows in enumerate(wanted.emitted):
        assert emitted(tmp_path / "redo", batch) == rows
    location = tmp_path / "redo" / "ck" / "headrace-state"
    state = published(location, report["query"], REDO_FILES - 1)
    assert Counter(plain_rows(state)) == wanted.state["running"]


@pytest.mark.long
def test_partitions_wait_for_their_log_and_the_end_for_the_last_state(tmp_path: Path, bridge: str) -> None:
    write_input(tmp_path / "in", SEED, 1)
    write_input(tmp_path / "more", SEED, REDO_FILES)
    report = driven(tmp_path, "pinned", bridge=bridge)
    assert report["published"] == [], "the hosts died between the two acknowledgements"
    assert len(list(tmp_path.glob("local-*-x*"))) == 2, "executors share no disk"
    assert placed(report["hosts"]) == placed(report["before"])
    wanted = expected("running", batches(SEED)[:REDO_FILES])
    for batch, rows in enumerate(wanted.emitted):
        assert emitted(tmp_path / "pinned", batch) == rows
    location = tmp_path / "pinned" / "ck" / "headrace-state"
    state = read_state(location, report["query"], "running", REDO_FILES - 1)  # the end has waited for it
    assert Counter(plain_rows(state)) == wanted.state["running"]


def placed(hosts: list[dict[str, Any]]) -> dict[str, list[int]]:
    return {host["machine"]: host["partitions"] for host in hosts}


def published(location: Path, query: str, version: int) -> StateAt:
    """The state once the hosts, which leave with the driver, have finished their commits."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return read_state(location, query, "running", version)
        except StateMissing:
            assert time.monotonic() < deadline, "the last version is not published"
            time.sleep(0.2)


def test_nothing_is_left_elsewhere(ran: tuple[Path, dict[str, Any]]) -> None:
    import pyspark

    folder, _ = ran
    assert list((folder / "work").iterdir()) == []
    assert list((folder / "home" / "work").glob("app-*"))  # executors' logs, which else lie in the package
    applications = {path.name for path in (folder / "home" / "work").iterdir()}
    elsewhere = Path(pyspark.__file__).parent / "work"
    assert not applications & {path.name for path in elsewhere.glob("*")}
