"""Protects hints in the host: from its door and from before the shuffle, around aborts and fences, over the
socket and relayed to another host, they bring state ahead and change no result."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.blob.locations import Locations
from headrace.checkpoint.pipeline import Crew
from headrace.clock import wait_until
from headrace.errors import Fenced
from headrace.host.ahead.hints import HintDoor, hint_rows, partitions_of
from headrace.host.process.door import Door
from headrace.host.state.service import PartitionService
from headrace.plan.options import CommitMode
from headrace.plan.spec import HASH
from headrace.testing.simulation.model import SPEC, state_of
from headrace.testing.simulation.model import batch_of as crowded_batch_of
from headrace.wire.contract import Summary, Ticket
from headrace.wire.frames import send_frame
from headrace.wire.listener import Listener, tcp_socket

KEYS = 2000
SHARE = 64 << 10  # memory for a part of the keys
SECRET = "secret"


def batch_of(rows: list[tuple[str, int]]) -> pa.RecordBatch:
    """Rows whose hashes differ."""
    batch = crowded_batch_of(rows)
    numbers = np.array([int(key.removeprefix("key-")) for key, _ in rows], np.uint64)
    hashes = (numbers * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return batch.set_column(0, batch.schema.field(0), pa.array(hashes))


class AtOnce(Executor):
    """Reads when a hint comes, so that no test depends on how busy the machine is."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:  # type: ignore[override]
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        function(*arguments)
        future.set_result(None)
        return future


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PartitionService]:
    locations = Locations(tmp_path / "local")
    service = PartitionService(1, locations, Crew(readers=AtOnce()), share_min=SHARE)
    yield service
    service.close()


class Query:
    """Batches over one partition, against a plain dict."""

    def __init__(self, service: PartitionService, folder: Path) -> None:
        self.service, self.folder = service, folder
        self.totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.version: int | None = None
        self.attempt = 0
        self.number = 0

    def ticket(self, lookahead: str) -> Ticket:
        self.attempt += 1
        place = ("start", "q", SPEC, 0, self.number, self.version, self.attempt, str(self.folder), 3)
        return Ticket(*place, lookahead=lookahead)

    def rows(self, keys: range) -> list[tuple[str, int]]:
        return [(f"key-{key}", self.number + key) for key in keys]

    def batch(self, keys: range, lookahead: str = "") -> Summary:
        transaction = self.service.begin(self.ticket(lookahead))
        rows = self.rows(keys)
        for start in range(0, len(rows), 100):
            transaction.apply(batch_of(rows[start : start + 100]))
        expected = dict(self.totals)
        for key, amount in rows:
            count, total = expected.get(key, (0, 0))
            expected[key] = (count + 1, total + amount)
        changed = {key: expected[key] for key, _ in rows}
        assert state_of(transaction.finish([])) == changed
        summary = transaction.commit()
        self.totals.update(changed)
        self.version, self.number = self.number, self.number + 1
        return summary

    def hint(self, keys: range) -> bool:
        hashes = batch_of(self.rows(keys)).column(HASH)
        return self.service.expect("q", SPEC.name, 0, pa.RecordBatch.from_arrays([hashes], [HASH]))

    def read(self) -> bool:
        """Whether all hints were read or dropped."""
        ahead = self.service.partitions[0].store.ahead_counts()  # type: ignore[union-attr]
        return ahead.hints <= ahead.filtered + ahead.dropped + ahead.fetched + ahead.failed + ahead.late


@pytest.fixture
def query(service: PartitionService, tmp_path: Path) -> Query:
    """All keys on disk, some of them in memory."""
    query = Query(service, tmp_path)
    for start in range(0, KEYS, 200):
        query.batch(range(start, start + 200), "door")
    return query


def test_the_door_reads_ahead_while_rows_wait_for_their_block(query: Query) -> None:
    reads = query.batch(range(150), "door").reads
    assert (reads.lookahead, reads.hits > 0) == ("door", True)
    assert reads.hints >= reads.fetched >= reads.hits
    assert reads.hits + reads.misses == reads.looked_up


def test_hints_before_the_batch_leave_nothing_to_read(query: Query) -> None:
    assert query.hint(range(150))
    assert wait_until(query.read, 20_000, 5)
    summary = query.batch(range(150), "stage")
    reads = summary.reads
    assert (reads.looked_up, reads.misses, reads.blocks) == (reads.hits, 0, 0)
    assert [span.phase for span in summary.spans or ()].count("prefetch") == 1, (
        "the timeline has a lane for it"
    )
    assert reads.hits > 100
    assert reads.slack_ms > 0
    assert reads.slowest_fetch_ms > 0


def test_without_a_lookahead_hints_are_ignored(query: Query) -> None:
    query.batch(range(10))
    assert query.hint(range(150))
    reads = query.batch(range(150)).reads
    assert (reads.hints, reads.hits, reads.lookahead) == (0, 0, "")
    assert reads.misses > 0


def test_hints_for_other_partitions_are_not_taken(query: Query) -> None:
    hints = hint_rows(np.zeros((3, 1), np.int64))
    assert not query.service.expect("q", SPEC.name, 7, hints)
    assert not query.service.expect("another", SPEC.name, 0, hints)


def test_an_aborted_and_a_fenced_batch_leave_no_staged_rows(query: Query) -> None:
    query.hint(range(100))
    aborted = query.service.begin(query.ticket("stage"))
    aborted.apply(batch_of(query.rows(range(50))))
    aborted.abort()
    query.hint(range(100))
    older = query.service.begin(query.ticket("stage"))
    older.apply(batch_of(query.rows(range(100))))
    query.hint(range(100, 200))
    newer = query.service.begin(query.ticket("stage"))
    with pytest.raises(Fenced):
        older.apply(batch_of(query.rows(range(5))))
    newer.abort()
    for keys in (range(200), range(100), range(50, 250)):
        query.batch(keys, "stage")


def test_hints_while_a_batch_runs_reach_it_with_its_next_rows(query: Query) -> None:
    transaction = query.service.begin(query.ticket("stage"))
    transaction.apply(batch_of(query.rows(range(50))))
    query.hint(range(50, 150))
    transaction.apply(batch_of(query.rows(range(50, 150))))
    rows = query.rows(range(150))
    results = state_of(transaction.finish([]))
    assert results == {
        key: (query.totals[key][0] + 1, query.totals[key][1] + amount) for key, amount in rows
    }
    transaction.abort()


def test_hints_for_the_next_batch_outlive_the_running_one(query: Query) -> None:
    """As a scout gives them: after the last row of the batch that runs."""
    transaction = query.service.begin(query.ticket("scout"))
    transaction.apply(batch_of(query.rows(range(10))))
    assert query.hint(range(300, 450))
    query.totals.update(state_of(transaction.finish([])))
    transaction.commit()
    query.version, query.number = query.number, query.number + 1
    assert wait_until(query.read, 20_000, 5)
    reads = query.batch(range(300, 450), "scout").reads
    assert (reads.hits > 100, reads.misses) == (True, 0)


@pytest.mark.parametrize("commit", ["sync", "async"])
def test_hints_that_fail_after_the_last_row_fail_no_commit(
    query: Query, monkeypatch: pytest.MonkeyPatch, commit: CommitMode
) -> None:
    transaction = query.service.begin(replace(query.ticket("scout"), commit=commit))
    transaction.apply(batch_of(query.rows(range(10))))
    strange = pa.RecordBatch.from_pydict({"strange": [1]})
    assert query.service.expect("q", SPEC.name, 0, strange)
    query.totals.update(state_of(transaction.finish([])))
    assert transaction.commit().version == query.number
    query.version, query.number = query.number, query.number + 1
    query.batch(range(20), "scout")


@pytest.fixture
def doors(service: PartitionService) -> Iterator[tuple[Listener, Listener]]:
    """A host that has the partition, and one that does not."""
    strange = PartitionService(1)
    opened = []
    for one in (service, strange):
        listener = Listener(tcp_socket("127.0.0.1"), SECRET, Door(one, None, HintDoor(one, SECRET)))
        listener.start()
        opened.append(listener)
    yield opened[0], opened[1]
    for listener in opened:
        listener.close()
    strange.close()


@pytest.mark.parametrize("relayed", [False, True])
def test_hints_come_over_the_socket(query: Query, doors: tuple[Listener, Listener], relayed: bool) -> None:
    own, strange = doors
    header = {"query": "q", "operator": SPEC.name, "partitions": 1, "timed": False}
    header["doors"] = [f"127.0.0.1:{own.port}"]
    hashes = batch_of(query.rows(range(150))).column(HASH).to_numpy()
    with socket.create_connection(("127.0.0.1", (strange if relayed else own).port)) as peer:
        send_frame(peer, {"secret": SECRET, "hints": header})
        data = hashes.tobytes() + b"abc"  # the sender dies in the middle of an entry
        peer.sendall(data[:13])
        peer.sendall(data[13:])
    ahead = query.service.partitions[0].store.ahead_counts()  # type: ignore[union-attr]
    assert wait_until(lambda: ahead.hints >= 150 and query.read(), 20_000, 5)
    assert query.batch(range(150), "stage").reads.hits > 100


def test_a_door_without_a_host_behind_it_loses_hints_only(
    query: Query, doors: tuple[Listener, Listener]
) -> None:
    dead = tcp_socket("127.0.0.1")
    port = dead.getsockname()[1]
    dead.close()
    header = {"query": "q", "operator": SPEC.name, "partitions": 1, "timed": False}
    header["doors"] = [f"127.0.0.1:{port}"]
    strange = HintDoor(PartitionService(1), SECRET)
    sender, receiver = socket.socketpair()
    with sender, receiver:
        taking = threading.Thread(target=strange, args=(receiver, header))
        taking.start()
        sender.sendall(np.arange(1000).tobytes())
        sender.shutdown(socket.SHUT_WR)
        taking.join()
    query.batch(range(150), "stage")


def test_partitions_of_hashes_are_those_of_the_shuffle() -> None:
    hashes = np.array([0, 1 << 62, -1, -(1 << 62)], np.int64)
    assert partitions_of(hashes, 4).tolist() == [0, 1, 3, 3]
    assert partitions_of(hashes, 3).tolist() == [0, 0, 2, 2]
