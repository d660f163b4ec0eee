"""Protects versions that are in a local log only: their partition stays on the disk that has the log. A
task elsewhere waits until a host of that disk is back, or gets an error that names the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from test_coordinator import View, summary

from headrace.blob.files import FileBlobs
from headrace.coordinator.core import Coordinator
from headrace.coordinator.placing.machines import HostReport, Machines
from headrace.coordinator.placing.pins import Home, Pins
from headrace.coordinator.placing.placement import owner_on_disk
from headrace.errors import StateMissing
from headrace.format.names import partition_prefix
from headrace.host.process.disk import disk_id
from headrace.plan.options import local_on
from headrace.plan.times import TIMES
from headrace.testing import ManualClock

KEY = ("q", "counts", 0)
LOST_MS = TIMES.host_lost_s * 1000 + 1


def home(number: int) -> Home:
    return Home("where", partition_prefix("q", "counts", number))


class Lab:
    """An application with one partition, whose version 3 machine `a` has logged."""

    def __init__(self, folder: Path) -> None:
        self.blobs, self.clock, self.jobs = FileBlobs(folder), ManualClock(100_000), 0
        self.pins = Pins(lambda location: self.blobs)
        self.machines = Machines(self.clock, self.pins, self._start_hosts)
        self.started: Callable[[], None] = lambda: None
        self.beat("a", "disk a")
        self.beat("b", "disk b")
        self.machines.ran(KEY, "a", "executor a")
        self.pins.committed("q", "counts", home(0), summary(0, 3, commit="async"))

    def _start_hosts(self) -> Future[None]:
        self.jobs += 1
        self.started()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def beat(self, machine: str, disk: str) -> None:
        addresses = {"tcp": f"grpc+tcp://{machine}:1", "tcp_door": f"{machine}:2"}
        self.machines.heartbeat(machine, HostReport(1, addresses, {}, disk))

    def lose_a(self) -> None:
        self.clock.advance_ms(LOST_MS)
        self.beat("b", "disk b")

    def publish(self) -> None:
        prefix = partition_prefix(*KEY)
        self.blobs.put_if_absent(f"{prefix}/manifests/v000000000003-r00000001-a000000000000.manifest", b"")

    def place(self, machine: str, base: int = 3) -> Any:
        return self.machines.place(KEY, base, machine, None)["machine"]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_partition_moves_once_its_version_is_published(lab: Lab) -> None:
    lab.lose_a()
    lab.publish()
    assert lab.machines.owner(KEY, 3)["machine"] is None, "any machine may have it"
    assert lab.place("b") == "b"
    assert lab.jobs == 0


def test_a_task_elsewhere_waits_for_a_host_on_the_disk(lab: Lab) -> None:
    lab.lose_a()
    lab.started = lambda: lab.beat("a", "disk a")
    planned = lab.machines.owner(KEY, 3)
    assert (planned["machine"], planned["executors"]) == ("a", ["executor a"])
    assert lab.place("b") == "a"
    assert lab.jobs == 1


def test_a_task_on_the_machine_starts_its_host_itself(lab: Lab) -> None:
    lab.lose_a()
    assert lab.machines.place(KEY, 3, "a", None)["address"] is None
    assert lab.jobs == 0


def test_another_host_of_the_same_disk_takes_over(lab: Lab) -> None:
    lab.lose_a()
    lab.beat("a2", "disk a")
    assert lab.machines.owner(KEY, 3)["machine"] == "a2"
    assert lab.place("b") == "a2"
    assert lab.jobs == 0


def test_without_the_disk_the_error_names_the_machine(lab: Lab) -> None:
    lab.lose_a()
    with pytest.raises(StateMissing, match="partition 0 of counts is only in the local log of a") as caught:
        lab.place("b")
    assert "hr.start" in caught.value.hint
    assert lab.jobs == 1


def test_a_batch_that_starts_from_an_earlier_version_may_move(lab: Lab) -> None:
    lab.lose_a()
    assert lab.place("b", base=2) == "b"


def test_a_synchronous_commit_pins_nothing(lab: Lab) -> None:
    lab.pins.committed("q", "counts", home(0), summary(0, 4, commit="sync"))
    lab.lose_a()
    assert lab.place("b", base=4) == "b"
    assert lab.pins.logged() == {}


def test_a_heartbeat_of_the_owner_proves_what_is_published() -> None:
    coordinator = Coordinator(View())
    coordinator.machines.ran(KEY, "a", "executor a")
    coordinator.pins.committed("q", "counts", home(0), summary(0, 3, commit="async"))

    def beat(machine: str, published: int | None) -> bool:
        part = {"query": "q", "operator": "counts", "partition": 0, "published": published, "store": None}
        coordinator.heartbeat(machine, HostReport(1, {}, {"partitions": [part]}))
        return KEY in coordinator.pins.logged()

    assert beat("a", None), "it is not published yet"
    assert beat("a", 2), "an earlier version is"
    assert beat("b", 3), "another host may have published an earlier attempt"
    assert not beat("a", 3)


def test_owner_on_disk() -> None:
    beats, disks = {"b": 0.0, "c": 0.0}, {"a": "x", "b": "x", "c": "x", "d": "x"}
    assert owner_on_disk("a", "b", disks, beats, 0.0) == "b"
    assert owner_on_disk("a", "d", disks, beats, 0.0) == "b"
    assert owner_on_disk("a", "a", disks, beats, 0.0) == "a"
    assert owner_on_disk("a", None, {}, beats, 0.0) is None
    assert owner_on_disk("b", "c", disks, beats, 0.0) == "b", "a live owner keeps it"


def test_hosts_of_one_directory_share_the_id_of_its_disk(tmp_path: Path) -> None:
    first = disk_id(tmp_path / "a")
    assert disk_id(tmp_path / "a") == first
    assert disk_id(tmp_path / "b") != first
    assert [path.name for path in (tmp_path / "a" / "log").iterdir()] == ["disk"]


def test_a_machine_may_have_a_directory_of_its_own() -> None:
    assert local_on("/data/{machine}/x", "m-1") == "/data/m-1/x"
    assert local_on("/data", "m-1") == "/data"
