"""Protects commits against a host that is killed at any moment of them, in every mode.

The list of moments is the code's own. A process runs batches and is killed at the moment; another one goes
on from what the first has acknowledged, with the local disk and without it. Real processes, no Spark.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from headrace.blob.locations import Locations
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.steps import Moment, Probe, unobserved
from headrace.compactor.server import CompactorDoor
from headrace.compactor.work import CompactionWork
from headrace.errors import StateMissing
from headrace.host.compaction.remote import RemoteCompaction
from headrace.host.compaction.workers import Workers
from headrace.host.state.service import PartitionService
from headrace.plan.options import COMMIT_MODES, CommitMode
from headrace.plan.partitions.groups import partition_of
from headrace.plan.partitions.layouts import Origin, first_layout
from headrace.plan.spec import HASH
from headrace.recovery.redo import StateOf, redo
from headrace.store.segments import compact
from headrace.testing.crash.matrix import CACHE, COLLECTION, COMPACTION, RECOVERY, RESCALE
from headrace.testing.faults.dying_service import dying_at, pausing_at
from headrace.testing.simulation.model import QUERY, SPEC, Rows, State, batch_of, state_of
from headrace.wire.contract import Ticket
from headrace.wire.listener import Listener, tcp_socket

BATCHES: list[Rows] = [
    [(f"key-{(7 * number + key) % 9}", key) for key in range(number + 4)] for number in range(6)
]
ALL = [*BATCHES, [(f"key-{key}", 0) for key in range(9)]]  # the last one shows all that there is
NEVER_IN_SYNC = {Moment.LOGGING, Moment.LOGGED, Moment.UPLOADING, Moment.UPLOADED, Moment.RETIRED}
SECRET = "s" * 64


class Query:
    """A query over one partition, as its driver sees it."""

    retain = 3
    era = 0  # of the driver: its next start gets another name

    def __init__(self, folder: Path, mode: CommitMode) -> None:
        self.folder, self.mode, self.attempt = folder, mode, 0

    def serve(self, probe: Probe) -> PartitionService:
        return PartitionService(64 << 20, Locations(self.folder / "local"), Crew(probe=probe))

    def run(self, service: PartitionService, number: int) -> State:
        self.attempt += 1
        base = None if number == 0 else number - 1
        shared = str(self.folder / "shared")
        start = f"start-{os.getpid()}-{self.era}"
        ticket = Ticket(start, QUERY, SPEC, 0, number, base, self.attempt, shared, self.retain, self.mode)
        transaction = service.begin(ticket)
        transaction.apply(batch_of(ALL[number]))
        results = state_of(transaction.finish([]))
        transaction.commit()
        return results

    def die(self, probe: Probe, first: int = 0) -> int:
        """Run batches in a process that `probe` kills; the last batch that it acknowledged."""
        child, pipe = self._fork(probe, first)
        with pipe:
            batches = pipe.read()
        self._bury(child)
        return batches[-1] if batches else first - 1

    def stop_after(self, probe: Probe, last: int) -> None:
        """Run batches in a process that is killed when it has acknowledged batch `last`."""
        child, pipe = self._fork(probe, 0)
        with pipe:
            batches = b"".join(pipe.read(1) for _ in range(last + 1))
        assert batches == bytes(range(last + 1))
        os.kill(child, signal.SIGKILL)
        self._bury(child)

    def _fork(self, probe: Probe, first: int) -> tuple[int, IO[bytes]]:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                service = self.serve(probe)
                for number in range(first, len(BATCHES)):
                    self.run(service, number)
                    os.write(writer, bytes([number]))
                self.linger()
                service.close()
            finally:
                os._exit(3)
        os.close(writer)
        return child, os.fdopen(reader, "rb", buffering=0)

    def linger(self) -> None:
        """What the process waits for behind its last batch."""

    def _bury(self, child: int) -> None:
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "it came to its moment"
        assert os.WTERMSIG(status) == signal.SIGKILL
        self.attempt += len(BATCHES)  # whatever the dead one's attempts were, later ones are larger

    def go_on(self, last: int) -> None:
        """The batches after `last`, and then shared storage alone has everything."""
        service = self.serve(unobserved)
        for number in range(last + 1, len(BATCHES)):
            assert self.run(service, number) == expected(number)
        service.close()
        shutil.rmtree(self.folder / "local", ignore_errors=True)
        service = self.serve(unobserved)
        assert self.run(service, len(BATCHES)) == expected(len(BATCHES))
        service.close()


def expected(number: int) -> State:
    state: State = {}
    for rows in ALL[: number + 1]:
        for key, amount in rows:
            count, total = state.get(key, (0, 0))
            state[key] = (count + 1, total + amount)
    return {key: state[key] for key, _ in ALL[number]}


def moments(mode: CommitMode) -> list[Moment]:
    return [
        moment
        for moment in Moment
        if moment not in {*RECOVERY, *RESCALE, *COMPACTION, *COLLECTION, *CACHE}
        and not (mode == "sync" and moment in NEVER_IN_SYNC)
    ]


CASES = [(mode, moment) for mode in COMMIT_MODES for moment in moments(mode)]


@pytest.mark.parametrize(("mode", "moment"), CASES)
def test_a_host_killed_at_any_moment_loses_nothing(
    tmp_path: Path, mode: CommitMode, moment: Moment
) -> None:
    query = Query(tmp_path, mode)
    query.go_on(query.die(dying_at(moment, nth=3)))


@pytest.mark.parametrize(("mode", "moment"), CASES)
def test_with_its_disk_at_most_the_last_batch_is_lost(
    tmp_path: Path, mode: CommitMode, moment: Moment
) -> None:
    query = Query(tmp_path, mode)
    last = query.die(dying_at(moment, nth=3))
    shutil.rmtree(tmp_path / "local", ignore_errors=True)
    service = query.serve(unobserved)
    try:
        query.run(service, last + 1)
    except StateMissing:
        assert mode != "sync", "a synchronous commit is on shared storage"
        last -= 1
    service.close()
    query.go_on(last)


@pytest.mark.parametrize("moment", sorted(RECOVERY))
@pytest.mark.parametrize("mode", ["upload", "async"])
def test_a_host_killed_while_it_recovers_loses_nothing(
    tmp_path: Path, mode: CommitMode, moment: Moment
) -> None:
    query = Query(tmp_path, mode)
    query.stop_after(pausing_at(Moment.UPLOADING, 60, nth=3), last=2)
    assert query.die(dying_at(moment), first=3) == 2
    query.go_on(2)


class Rescaled(Query):
    """The query with three partitions from batch 3 on; one of them has all rows, as keys share a hash."""

    def tickets(self, number: int) -> list[Ticket]:
        self.attempt += 1
        base, origin = None if number == 0 else number - 1, Origin(1) if number == 3 else None
        is_new, start = number >= 3, f"start-{os.getpid()}"
        spec = replace(SPEC, partitions=3 if is_new else 1)
        rest = (number, base, self.attempt, str(self.folder / "shared"), 3, self.mode)
        return [
            Ticket(start, QUERY, spec, partition, *rest, by_range=is_new, origin=origin)
            for partition in range(spec.partitions)
        ]

    def run(self, service: PartitionService, number: int) -> State:
        begun = [service.begin(ticket) for ticket in self.tickets(number)]
        rows = batch_of(ALL[number])
        owner = partition_of(rows.column(HASH)[0].as_py(), len(begun))
        owners = {partition_of(hashed, len(begun)) for hashed in rows.column(HASH).to_pylist()}
        assert owners == {owner}
        begun[owner].apply(rows)
        results = [state_of(transaction.finish([])) for transaction in begun][owner]
        for transaction in begun:
            transaction.commit()
        return results


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("moment", sorted(RESCALE))
@pytest.mark.parametrize("mode", COMMIT_MODES)
def test_a_host_killed_while_partitions_change_loses_nothing(
    tmp_path: Path, mode: CommitMode, moment: Moment, nth: int
) -> None:
    query = Rescaled(tmp_path, mode)
    last = query.die(dying_at(moment, nth=nth))
    assert last == 2
    if mode != "sync":  # the base may be in the log only: the old partition publishes it, as hr.start does
        redo(tmp_path / "local", StateOf(str(tmp_path / "shared"), QUERY, SPEC.name, first_layout(1)), last)
    query.go_on(last)


class Compacted(Query):
    """A query whose compactions are done by a compactor, or by the host if there is none."""

    addresses: tuple[str, ...] = ()

    def linger(self) -> None:
        """A compaction runs behind the batches: its moment may come after the last one."""
        time.sleep(60)

    def serve(self, probe: Probe) -> PartitionService:
        remote = RemoteCompaction(Workers(self.addresses, SECRET)) if self.addresses else None
        place = (64 << 20, Locations(self.folder / "local"), Crew(probe=probe))
        return PartitionService(*place, remote=remote)


@pytest.mark.parametrize("by_host", [True, False])
@pytest.mark.parametrize("moment", sorted(COMPACTION))
@pytest.mark.parametrize("mode", COMMIT_MODES)
def test_a_host_killed_while_segments_are_compacted_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: CommitMode, moment: Moment, by_host: bool
) -> None:
    monkeypatch.setattr(compact, "FAN_IN_UNREAD", 2)
    door = CompactorDoor(CompactionWork(tmp_path / "compactor"), 1)
    listener = Listener(tcp_socket("127.0.0.1"), SECRET, door)
    listener.start()
    try:
        query = Compacted(tmp_path, mode)
        query.addresses = () if by_host else (f"127.0.0.1:{listener.port}",)
        last = query.die(dying_at(moment))
        if mode != "sync":
            redo(
                tmp_path / "local",
                StateOf(str(tmp_path / "shared"), QUERY, SPEC.name, first_layout(1)),
                last,
            )
        query.go_on(last)
    finally:
        listener.close()
