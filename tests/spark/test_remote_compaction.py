"""Protects `spark.headrace.compaction=remote` in a real query with a real compactor process: results stay
exact while it works, after it was killed, and after the host was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streaming_case import Case

from headrace.clock import SYSTEM_CLOCK

pytestmark = pytest.mark.spark
BATCHES = 10  # eight segments of a partition are compacted
WITHIN_S = 120


@dataclass
class Compactor:
    """A compactor's process."""

    process: subprocess.Popen[str]
    log: Path
    address: str

    @property
    def outputs(self) -> int:
        return self.log.read_text().count(" rows, ")

    def await_outputs(self) -> None:
        for _ in range(WITHIN_S * 20):
            if self.outputs:
                return
            SYSTEM_CLOCK.sleep_ms(50)
        raise AssertionError(f"no compaction: {self.log.read_text()}")


@pytest.fixture
def compactor(tmp_path: Path) -> Iterator[Compactor]:
    secret, log = tmp_path / "secret", tmp_path / "compactor.log"
    secret.write_text("s" * 64)
    secret.chmod(0o600)
    command = [sys.executable, "-m", "headrace", "compactor", "--listen", "127.0.0.1:0"]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--secret-file", str(secret)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},  # a killed compactor leaves its folder
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield Compactor(process, log, line.removeprefix("compactor at ").strip())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def case(spark: SparkSession, compactor: Compactor, tmp_path: Path) -> Iterator[Case]:
    """An empty query whose hosts have the compactor."""
    case = Case(spark, tmp_path / "in", tmp_path / "ck")
    case.kill_hosts()
    settings = {
        "spark.headrace.compaction": "remote",
        "spark.headrace.compaction.workers": compactor.address,
        "spark.headrace.compaction.secret": str(tmp_path / "secret"),
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield case
    for name in settings:
        spark.conf.unset(name)
    case.kill_hosts()


def feed(case: Case, first: int) -> None:
    for number in range(first, first + BATCHES):
        case.feed(*((f"u{user}", number, float(user)) for user in range(number % 7, 40)))


def expected(batches: int) -> dict[str, int]:
    return {f"u{user}": sum(1 for number in range(batches) if number % 7 <= user) for user in range(40)}


def newest(rows: list[tuple[object, ...]]) -> dict[object, object]:
    return {user: n for _, user, n, _ in sorted(rows, key=lambda row: int(str(row[0])))}


def test_results_are_the_same_with_a_compactor_and_after_its_death(
    case: Case, compactor: Compactor
) -> None:
    feed(case, 0)
    got = case.run(case.totals())
    assert newest(got) == expected(BATCHES)
    compactor.await_outputs()
    compactor.process.kill()
    feed(case, BATCHES)
    got += case.run(case.totals())
    assert newest(got) == expected(2 * BATCHES)
    case.kill_hosts()
    feed(case, 2 * BATCHES)
    got += case.run(case.totals())
    assert newest(got) == expected(3 * BATCHES), "state on storage has what the compactor wrote"
