"""Protects versions against several attempts of one task: one version, one result, the loser is fenced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from streaming_case import Case

from headrace.errors import Fenced, HeadraceError
from headrace.host.process.server import HostCore, HostServer
from headrace.host.state.service import open_service
from headrace.plan.spec import (
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    input_schema,
)
from headrace.testing.state_reader import read_state
from headrace.wire.calls import connect
from headrace.wire.client import Exchange
from headrace.wire.contract import Ticket

SECRET = "s" * 64
COUNTS = OperatorSpec(
    name="counts",
    keys=(Field("k0", "int64", "k"),),
    inputs=(),
    work=Fold((Accumulator("count", None, "int64"),)),
    window=None,
    emit="changes",
    timed=False,
    delays_ms=(),
    partitions=1,
)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    service = open_service(32 << 20, tmp_path)
    location = f"grpc+unix://{tmp_path}/h.sock"
    server = HostServer(HostCore(service, lambda: None), location, SECRET)
    yield location
    server.shutdown()
    service.close()


class Attempt:
    """One attempt of a task, driven step by step."""

    def __init__(self, address: str, state: Path, number: int, batch: int = 0) -> None:
        base = batch - 1 if batch else None
        ticket = Ticket("app", "query", COUNTS, 0, batch, base, number, str(state), 5)
        self.exchange = Exchange(connect(address), SECRET, ticket)

    def send(self, *keys: int) -> Attempt:
        column = pa.array(keys, pa.int64())
        self.exchange.send(pa.RecordBatch.from_arrays([column, column], schema=input_schema(COUNTS)))
        return self

    def finish(self) -> dict[int, int]:
        """The results, once committed."""
        table = pa.Table.from_batches(self.exchange.results([]))
        return dict(zip(table["k0"].to_pylist(), table["a0"].to_pylist(), strict=True))


def stored(state: Path, version: int) -> dict[int, int]:
    return dict(read_state(state, "query", "counts", version).rows())


def manifests(state: Path, version: int) -> list[str]:
    return sorted(path.name for path in state.glob(f"query/counts/p0000/manifests/v{version:012d}-*"))


def test_the_newer_of_two_running_attempts_wins(address: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    older = Attempt(address, state, 1).send(1, 2)
    assert Attempt(address, state, 2).send(1, 2, 2).finish() == {1: 1, 2: 2}
    with pytest.raises(Fenced, match="attempt 1 of batch 0"):
        older.send(2).finish()
    assert len(manifests(state, 0)) == 1
    assert "a000000000002" in manifests(state, 0)[0]
    assert stored(state, 0) == {1: 1, 2: 2}
    assert Attempt(address, state, 3, batch=1).send(2).finish() == {2: 3}
    assert stored(state, 1) == {1: 1, 2: 3}


def test_an_older_attempt_that_comes_late_is_fenced(address: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert Attempt(address, state, 5).send(1).finish() == {1: 1}
    with pytest.raises(Fenced, match="came after attempt 5"):
        Attempt(address, state, 4).send(1, 1).finish()
    assert stored(state, 0) == {1: 1}


def test_a_repeated_attempt_starts_from_the_same_base(address: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert Attempt(address, state, 1).send(1).finish() == {1: 1}
    assert Attempt(address, state, 2, batch=1).send(1).finish() == {1: 2}
    assert Attempt(address, state, 3, batch=1).send(1).finish() == {1: 2}
    assert stored(state, 1) == {1: 2}
    assert len(manifests(state, 1)) == 2


def test_attempts_that_race_leave_one_result(address: str, tmp_path: Path) -> None:
    state, outcomes, together = tmp_path / "state", dict[int, object](), threading.Barrier(6)

    def attempt(number: int) -> None:
        together.wait()
        try:
            outcomes[number] = Attempt(address, state, number).send(1, 2, 2).finish()
        except HeadraceError as error:
            outcomes[number] = type(error)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes[6] == {1: 1, 2: 2}
    assert all(outcome in ({1: 1, 2: 2}, Fenced) for outcome in outcomes.values())
    assert stored(state, 0) == {1: 1, 2: 2}
    assert Attempt(address, state, 7, batch=1).send(2).finish() == {2: 3}


def fail_first_attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes everything, so that the operator before it has committed, and then fails once."""
    from pyspark import TaskContext

    results = list(batches)
    if TaskContext.get().attemptNumber() == 0:
        raise ValueError("lost after the commit")
    yield from results


@pytest.mark.spark
def test_a_task_that_fails_after_its_commit_counts_once(case: Case) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(__import__(__name__))  # workers cannot import the tests
    case.feed(("a", 0, 1.0), ("b", 0, 1.0), ("c", 0, 1.0), ("d", 0, 1.0))
    case.feed(("a", 1, 1.0), ("b", 1, 1.0), ("c", 1, 1.0), ("d", 1, 1.0))
    totals = case.totals()
    got = case.run(totals.mapInArrow(fail_first_attempt, totals.schema))
    assert got == [(batch, user, batch + 1, batch + 1.0) for batch in (0, 1) for user in "abcd"]
    for version in (0, 1):  # the first attempts had committed too
        for partition in range(3):
            folder = next(case.state.glob(f"*/totals/p{partition:04d}/manifests"))
            assert len(list(folder.glob(f"v{version:012d}-*"))) == 2
    assert sorted(row[0] for row in case.state_at(1).rows()) == ["a", "b", "c", "d"]
