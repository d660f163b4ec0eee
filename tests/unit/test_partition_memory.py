"""Protects what a host keeps of its partitions between batches.

Memory is used only when it is the truth and reads rows as the ticket does. What is replaced, dropped or
left over (descriptors, staged files, shares of the memory budget) is given back while the host lives on.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.blob.files import FileBlobs
from headrace.blob.retry import Retry
from headrace.checkpoint.epoch_files import PublishedFiles
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.pipeline import Crew
from headrace.clock import SystemClock
from headrace.errors import TryAgain
from headrace.host.state.maintenance import Finished
from headrace.host.state.partition import Partition
from headrace.host.state.service import PartitionService
from headrace.host.state.transaction import PartitionTransaction
from headrace.operators.open import kinds_of
from headrace.plan.spec import (
    TIME,
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    Window,
    input_schema,
)
from headrace.plan.times import TIMES
from headrace.row.run import Run
from headrace.store.base.contract import Store
from headrace.store.base.jobs import Compaction
from headrace.store.tables.table import Table
from headrace.testing import ManualClock
from headrace.wire.contract import Ticket

SUMS = OperatorSpec(
    name="sums",
    keys=(Field("k0", "int64", "key"),),
    inputs=(Field("v0", "int64", "amount"), Field("v1", "int64", "other")),
    work=Fold((Accumulator("sum", "v0", "int64"), Accumulator("max", "v1", "int64"))),
    window=None,
    emit="changes",
    timed=False,
    delays_ms=(),
    partitions=1,
)
Numbers = dict[int, tuple[int, int]]  # key: amount, other


def ticket(folder: Path, batch: int, attempt: int, **more: object) -> Ticket:
    base = batch - 1 if batch else None
    return replace(Ticket("start", "q", SUMS, 0, batch, base, attempt, str(folder), 3), **more)


def rows(spec: OperatorSpec, numbers: Numbers) -> pa.RecordBatch:
    labels = {field.label: field.name for field in (*spec.keys, *spec.inputs)}
    given = {
        "__hash": [key << 40 for key in numbers],
        labels["key"]: list(numbers),
        labels["amount"]: [amount for amount, _ in numbers.values()],
        labels["other"]: [other for _, other in numbers.values()],
        TIME: [0] * len(numbers),
    }
    schema = input_schema(spec)
    columns = [pa.array(given[field.name], pa.int64()).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def run(service: PartitionService, request: Ticket, numbers: Numbers, *, commit: bool = True) -> Numbers:
    """One transaction; what it gave for each key."""
    transaction = service.begin(request)
    transaction.apply(rows(request.operator, numbers))
    batches = list(transaction.finish([]))
    if commit:
        transaction.commit()
    else:
        transaction.abort()
    return {row["k0"]: (row["a0"], row["a1"]) for batch in batches for row in batch.to_pylist()}


def only(service: PartitionService) -> Partition:
    (partition,) = service.partitions
    return partition


def test_memory_that_another_host_overtook_is_not_used(tmp_path: Path) -> None:
    """The partition went to another host and came back; in between a new start replayed the version."""
    one, other = PartitionService(64 << 20), PartitionService(64 << 20)
    run(one, ticket(tmp_path, 0, 1), {7: (1, 0)})
    assert run(other, ticket(tmp_path, 0, 1, start="next"), {7: (100, 0)}) == {7: (100, 0)}
    assert run(one, ticket(tmp_path, 1, 2, start="next"), {7: (5, 0)}) == {7: (105, 0)}
    one.close()
    other.close()


def test_memory_of_an_operator_with_other_wire_names_is_not_used(tmp_path: Path) -> None:
    """The same operator as its record sees it; only the columns on the wire are in another order."""
    service = PartitionService(64 << 20)
    run(service, ticket(tmp_path, 0, 1), {7: (1, 50)})
    swapped = replace(
        SUMS,
        inputs=(Field("v0", "int64", "other"), Field("v1", "int64", "amount")),
        work=Fold((Accumulator("sum", "v1", "int64"), Accumulator("max", "v0", "int64"))),
    )
    again = ticket(tmp_path, 1, 2, start="next", operator=swapped)
    assert run(service, again, {7: (2, 60)}) == {7: (3, 60)}
    service.close()


def test_a_query_that_ended_leaves_its_memory_to_the_others_and_may_come_back(tmp_path: Path) -> None:
    service = PartitionService(64 << 20)
    run(service, replace(ticket(tmp_path, 0, 1), query="other"), {7: (1, 0)})
    run(service, ticket(tmp_path, 0, 1), {7: (1, 0)})
    _, mine = service.partitions
    before = mine.share.limit_bytes
    service.ended(["other"])
    assert [entry["store"] for entry in service.status()["partitions"]] == ["rmw"]
    assert mine.share.limit_bytes > before
    again = replace(ticket(tmp_path, 1, 2), query="other")
    assert run(service, again, {7: (5, 0)}) == {7: (6, 0)}
    service.close()


def test_a_query_in_the_middle_of_a_batch_keeps_its_memory_whatever_is_said(tmp_path: Path) -> None:
    service = PartitionService(64 << 20)
    request = ticket(tmp_path, 0, 1)
    transaction = service.begin(request)
    transaction.apply(rows(request.operator, {7: (1, 0)}))
    service.ended([request.query])
    transaction.apply(rows(request.operator, {7: (2, 0)}))
    assert [row["a0"] for batch in transaction.finish([]) for row in batch.to_pylist()] == [3]
    transaction.commit()
    service.close()


def segment_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("segments/*") if path.is_file())


def test_what_an_epoch_spills_is_on_storage_only_if_it_stays(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    home = PartitionHome.of(blobs, "p", SystemClock())
    request = ticket(tmp_path, 0, 1)
    (kind, *_), files = kinds_of(request.operator), PublishedFiles(home, request, 1)
    width = kind.shape.width
    run_of_one = Run(np.ones(1, np.uint64), np.ones((1, width), np.uint64), np.zeros(0, np.uint8))
    done, stays = (files.write(kind, [(number, [run_of_one])]) for number in (1, 2))
    assert blobs.list("p/segments/") == [], "nothing has a name yet"
    assert files.nbytes == done.size + stays.size
    files.keep(lambda segment: 2 in segment.sections)
    assert [f"p/segments/{name}" for name in segment_files(tmp_path)] == blobs.list("p/segments/")
    assert len(segment_files(tmp_path)) == 1
    assert home.files.path(stays.file.id).exists()
    assert len(next(iter(done.scan(1, 10)))) == 1, "who reads a file that went reads on"


def test_what_an_epoch_spilled_for_several_windows_is_one_file_on_storage(tmp_path: Path) -> None:
    windows = Window(10_000_000, slide_us=2_000_000)
    counts = replace(SUMS, window=windows, emit="final", timed=True, delays_ms=(0,))
    service = PartitionService(64 << 20)
    transaction = service.begin(ticket(tmp_path, 0, 1, operator=counts))
    assert isinstance(transaction, PartitionTransaction)
    store: Any = transaction.store
    for _ in range(3):
        transaction.apply(rows(counts, {7: (1, 0), 8: (2, 0)}))
        transaction.fold()
        store.spill()
    assert len(segment_files(tmp_path)) == 3
    assert list(transaction.finish([0])) == []
    transaction.commit()
    assert len(segment_files(tmp_path)) == 1
    closing = service.begin(ticket(tmp_path, 1, 2, operator=counts))
    (given,) = [batch.to_pydict() for batch in closing.finish([2_000])]
    assert (given["k0"], given["a0"]) == ([7, 8], [3, 6])
    closing.commit()
    service.close()


def test_an_epoch_that_is_given_up_leaves_no_files(tmp_path: Path) -> None:
    service = PartitionService(64 << 20)
    run(service, ticket(tmp_path, 0, 1), {7: (1, 0)})
    committed = segment_files(tmp_path)
    request = ticket(tmp_path, 1, 2)
    transaction = service.begin(request)
    transaction.apply(rows(request.operator, {8: (1, 0)}))
    assert isinstance(transaction, PartitionTransaction)
    transaction.fold()
    store: Any = transaction.store
    store.spill()
    assert len(segment_files(tmp_path)) == len(committed) + 1
    transaction.abort()
    assert segment_files(tmp_path) == committed
    service.close()


def test_what_a_store_had_to_spill_counts_as_memory_that_it_needs(tmp_path: Path) -> None:
    service = PartitionService(64 << 20)
    request = ticket(tmp_path, 0, 1)
    transaction = service.begin(request)
    assert isinstance(transaction, PartitionTransaction)
    transaction.apply(rows(request.operator, dict.fromkeys(range(1000), (1, 0))))
    transaction.fold()
    store: Any = transaction.store
    store.spill()
    spilled = store.files.nbytes
    transaction.apply(rows(request.operator, {8: (1, 0)}))
    transaction.fold()
    assert spilled > 0
    assert only(service).share.needed_bytes == store.memory_bytes + spilled
    transaction.abort()
    service.close()


def descriptors(folder: Path) -> int:
    paths = [os.readlink(f"/proc/self/fd/{number}") for number in _open_now()]
    return sum(path.startswith(str(folder)) for path in paths)


def _open_now() -> list[str]:
    return [number for number in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{number}")]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_dropped_stores_close_their_segments(tmp_path: Path) -> None:
    service = PartitionService(64 << 20)
    run(service, ticket(tmp_path, 0, 1), {7: (1, 0)})
    for attempt in range(2, 12):
        run(service, ticket(tmp_path, 1, attempt), {7: (1, 0)}, commit=False)
    assert descriptors(tmp_path) == 0, "an aborted transaction leaves no store"
    run(service, ticket(tmp_path, 1, 12), {7: (1, 0)})
    assert descriptors(tmp_path) == 2, "one for each segment of the version"
    service.close()
    assert descriptors(tmp_path) == 0


def test_a_segment_that_cannot_be_placed_leaves_nothing(tmp_path: Path) -> None:
    class Full(FileBlobs):
        def put_file(self, name: str, path: Path) -> None:
            raise TryAgain("no space")

    blobs = Full(tmp_path)
    home = PartitionHome.of(blobs, "p", SystemClock(), retry=Retry(tries=1))
    files = PublishedFiles(home, ticket(tmp_path, 0, 1), 1)
    files.write(kinds_of(ticket(tmp_path, 0, 1).operator)[0], [])
    with pytest.raises(TryAgain, match="no space"):
        files.keep(lambda _: True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def delivered(partition: Partition, store: Store) -> Path:
    """A compaction that has finished, as `Upkeep` delivers it; the path of its staged file."""
    first = store.segments[0]
    (kind, *_), home = kinds_of(SUMS), partition.home
    copied = home.staged(kind, lambda path: bool(shutil.copy(home.files.path(first.file.id), path)))
    assert copied is not None
    job = Compaction(tuple(store.segments), kind, lambda *_: True)
    partition.deliver(store, Finished(job, [copied]))
    return home.files.path(copied.file.id)


def test_compactions_that_no_commit_takes_are_removed(tmp_path: Path) -> None:
    service = PartitionService(64 << 20)
    run(service, ticket(tmp_path, 0, 1), {7: (1, 0)})
    partition = only(service)
    assert partition.store is not None
    first, second = (delivered(partition, partition.store) for _ in range(2))
    assert (first.exists(), second.exists()) == (False, True)
    service.close()
    assert not second.exists()


def working(service: PartitionService) -> int:
    return sum(not partition.is_at_rest for partition in service.partitions)


def test_idle_partitions_make_room_for_new_ones(tmp_path: Path) -> None:
    clock = ManualClock()
    service = PartitionService(64 << 20, crew=Crew(clock=clock, watched=False))
    run(service, ticket(tmp_path, 0, 1), {7: (1, 0)})
    run(service, ticket(tmp_path, 0, 2, query="young"), {7: (1, 0)})
    assert working(service) == 2, "nobody has been idle for long"
    clock.advance_ms(TIMES.partition_idle_s * 1000)
    run(service, ticket(tmp_path, 0, 3, query="new"), {7: (1, 0)})
    assert working(service) == 1
    assert [entry["memory_bytes"] > 0 for entry in service.status()["partitions"]] == [False, False, True]
    assert run(service, ticket(tmp_path, 1, 4), {7: (2, 0)}) == {7: (3, 0)}, "and come back as they were"
    assert working(service) == 2
    service.close()


def test_a_partition_at_work_does_not_rest(tmp_path: Path) -> None:
    service = PartitionService(64 << 20)
    transaction = service.begin(ticket(tmp_path, 0, 1))
    transaction.apply(rows(SUMS, {7: (1, 0)}))
    only(service).rest(0.0)
    assert [batch.to_pylist() for batch in transaction.finish([])] == [[{"k0": 7, "a0": 1, "a1": 0}]]
    transaction.commit()
    assert run(service, ticket(tmp_path, 1, 2), {7: (1, 0)}) == {7: (2, 0)}
    service.close()


@pytest.mark.parametrize("window", [None, Window(10), Window(10, session=True)])
def test_status_looks_at_no_table_beside_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: Window | None
) -> None:
    """Arrays move when a table grows: a host died of a status that counted sessions meanwhile."""
    service = PartitionService(64 << 20)
    operator = replace(SUMS, window=window, timed=window is not None)
    begun = service.begin(ticket(tmp_path, 0, 1, operator=operator))
    begun.apply(rows(operator, {7: (1, 0)}))
    list(begun.finish([]))
    begun.commit()
    begun = service.begin(ticket(tmp_path, 1, 2, operator=operator))
    begun.apply(rows(operator, dict.fromkeys(range(8, 80), (1, 0))))
    store = only(service).store
    assert store is not None
    monkeypatch.setattr(type(store), "keys_after", lambda *_: pytest.fail("a status counted keys"))
    for name in ("hashes", "view"):
        monkeypatch.setattr(Table, name, lambda *_: pytest.fail("a status looked at a table"))
    (entry,) = service.status()["partitions"]
    assert (entry["keys"], entry["version"]) == (1, 0)
    assert entry["memory_bytes"] > 0
    monkeypatch.undo()
    begun.abort()
    service.close()
