"""Protects the start on an empty machine: what a host requests from shared storage to open 3 operators of 8
partitions, and in each batch, does not grow with the state. A batch reads what its keys touch.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.bench.shared.rows import batch_of, hashes_of, partitions_of, spec_of
from headrace.blob.base import Blobs
from headrace.blob.memory import MemoryBlobs
from headrace.files.rollup import Known, RollUp
from headrace.format.names import LEASE, parse_segment
from headrace.host.state.service import PartitionService, open_service
from headrace.plan.options import CommitMode
from headrace.row.arrays import I64
from headrace.testing import ManualClock
from headrace.testing.faults.measured_blobs import MeasuredBlobs
from headrace.wire.contract import Span, Ticket
from headrace.wire.state_reads import StateReads

OPERATORS, PARTITIONS, MEMORY = 3, 8, 64 << 20
LOADED = 3  # batches that write the state


class Machine:
    """A host with an empty disk of its own, and the log of its requests."""

    def __init__(self, folder: Path, start: str, commit: CommitMode = "sync") -> None:
        self._start, self._shared, self._commit = start, str(folder / "state"), commit
        self.blobs: list[MeasuredBlobs] = []
        self.reads: list[StateReads] = []  # as progress has them
        self.fetches: list[Span] = []  # as the timeline has them
        self.service: PartitionService = open_service(MEMORY, folder / start, wrap=self._far)

    def _far(self, blobs: Blobs) -> Blobs:
        self.blobs.append(MeasuredBlobs(blobs))
        return self.blobs[0]

    def batch(self, number: int, keys: I64) -> dict[tuple[int, int], int]:
        """Runs a batch of all operators; the sum of counts by operator and partition."""
        hashes = hashes_of(keys)
        parts = partitions_of(hashes, PARTITIONS)
        places = [(operator, partition) for operator in range(OPERATORS) for partition in range(PARTITIONS)]
        with ThreadPoolExecutor(len(places)) as pool:
            tasks = {
                place: pool.submit(self._task, number, place, keys[parts == place[1]]) for place in places
            }
        return {place: task.result() for place, task in tasks.items()}

    def _task(self, number: int, place: tuple[int, int], keys: I64) -> int:
        operator, partition = place
        spec = spec_of(f"totals{operator}", PARTITIONS)
        base = number - 1 if number else None
        ticket = Ticket(self._start, "q", spec, partition, number, base, number + 1, self._shared, 2)
        transaction = self.service.begin(replace(ticket, commit=self._commit))
        transaction.apply(batch_of(spec, keys, hashes_of(keys)))
        counts = [batch.column(batch.num_columns - 2) for batch in transaction.finish([])]
        summary = transaction.commit()
        self.reads.append(summary.reads)
        self.fetches.extend(span for span in summary.spans or () if span.phase == "fetch")
        return sum(int(np.sum(np.asarray(column))) for column in counts)

    def counts(self) -> Counter[str]:
        """Requests of batches since the last look; uploads of compactions are not theirs."""
        requests = list(self.blobs[0].requests)
        self.blobs[0].clear()
        return Counter(each.operation for each in requests if not is_compaction(each.name))


def is_compaction(name: str) -> bool:
    parsed = parse_segment(name)
    return parsed is not None and parsed.attempt.version >= LEASE


def loaded(folder: Path, keys: int) -> None:
    """A state of so many keys, in as many files whatever its size."""
    machine = Machine(folder, "loader")
    for number in range(LOADED):
        machine.batch(number, np.arange(number, keys, LOADED, dtype=np.int64))
    machine.service.close()


def first_batches(folder: Path, touched: I64) -> tuple[list[Counter[str]], int, dict[tuple[int, int], int]]:
    """Requests of the first two batches on an empty machine, bytes of the first, and its results."""
    machine = Machine(folder, "restarted")
    results = machine.batch(LOADED, touched)
    nbytes, counts = machine.blobs[0].nbytes(), [machine.counts()]
    assert 0 < sum(read.requests for read in machine.reads) <= counts[0]["range"], "a compaction adds more"
    assert 0 < sum(read.fetched_bytes for read in machine.reads) < nbytes
    assert machine.fetches
    assert all(span.start_ms <= span.end_ms for span in machine.fetches)
    machine.batch(LOADED + 1, touched)
    counts.append(machine.counts())
    machine.service.close()
    return counts, nbytes, results


def test_requests_do_not_grow_with_the_state(tmp_path: Path) -> None:
    small, large = 20_000, 400_000
    touched = np.arange(7, 20_000, 400, dtype=np.int64)
    figures = {}
    for keys in (small, large):
        folder = tmp_path / str(keys)
        folder.mkdir()
        loaded(folder, keys)
        figures[keys] = first_batches(folder, touched)
    (few, _, results), (many, nbytes, large_results) = figures[small], figures[large]
    assert results == large_results, "each touched key was counted once before"
    assert sum(results.values()) == OPERATORS * 2 * len(touched)
    for operation in ("get", "list", "head", "put"):
        assert many[0][operation] == few[0][operation], f"{operation} of the first batch"
    assert many[1]["get"] == few[1]["get"] == many[0]["head"] == many[1]["head"] == 0
    places = OPERATORS * PARTITIONS
    assert many[0]["get"] == places + 2, "the operator's record; the roll-up, the newest run"
    assert many[0]["list"] <= 2 * places + 3, "the base and, to publish, the files; runs, roll-ups"
    reads = 2 * len(touched) * OPERATORS
    assert many[0]["range"] <= LOADED * places + reads, "a directory per file, a page and a block per key"
    assert many[1]["range"] <= 1, "the second batch touches the same keys"
    state = sum(path.stat().st_size for path in (tmp_path / str(large) / "state").rglob("*.segment"))
    assert nbytes < 0.2 * state


@pytest.mark.parametrize("commit", ["sync", "async"])
def test_a_batch_in_memory_reads_nothing(tmp_path: Path, commit: CommitMode) -> None:
    machine = Machine(tmp_path, "one", commit)
    keys = np.arange(1000, dtype=np.int64)
    for number in range(4):
        machine.batch(number, keys)
    machine.counts()
    machine.batch(4, keys)
    assert machine.counts()["range"] == 0
    machine.service.close()


def test_a_roll_up_that_is_old_or_gone_changes_no_result(tmp_path: Path) -> None:
    keys = np.arange(3000, dtype=np.int64)
    loaded(tmp_path, 3000)
    runs = tmp_path / "state" / "q" / "runs"
    (rollup,) = runs.glob("rollup-*")
    old = rollup.read_bytes()
    first = Machine(tmp_path, "first")
    expected = first.batch(LOADED, keys)
    first.service.close()
    assert len(list(runs.glob("rollup-*"))) == 2, "that of the loader, not far behind, and its own"
    for path in runs.glob("rollup-*"):
        path.unlink()
    rollup.write_bytes(old)  # its manifests are those of a version before
    second = Machine(tmp_path, "second")
    later = second.batch(LOADED + 1, keys)
    second.service.close()
    assert {place: count - len_of(keys, place[1]) for place, count in later.items()} == expected
    for path in runs.glob("rollup-*"):
        path.write_bytes(old[:-1])  # damaged
    third = Machine(tmp_path, "third")
    last = third.batch(LOADED + 2, keys)
    third.service.close()
    assert {place: count - 2 * len_of(keys, place[1]) for place, count in last.items()} == expected


def len_of(keys: I64, partition: int) -> int:
    """How many of the keys a partition has."""
    return int((partitions_of(hashes_of(keys), PARTITIONS) == partition).sum())


def test_a_version_that_partitions_reach_one_after_another_is_rolled_up_whole() -> None:
    """A second roll-up of one version was left out, and the start read the manifests one by one."""
    blobs, clock = MemoryBlobs(), ManualClock()
    written = RollUp(blobs, "q", clock)
    for number in range(2):
        written.offer(f"q/op/p{number}/", Known(7, f"v7-{number}", b"{}", {}))
        written.write(now=True)
    read = RollUp(blobs, "q", clock)
    read.load()
    assert [read.manifest(f"q/op/p{number}/", f"v7-{number}") for number in range(2)] == [b"{}", b"{}"]
    assert len(blobs.list("q/runs/rollup-")) == 1
