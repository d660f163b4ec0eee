"""Protects the last state of a query: its end waits for commits under way, within a limit, and for nothing
else; what is not published then is named.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from test_coordinator import View, summary

from headrace.blob.files import FileBlobs
from headrace.coordinator.core import Coordinator
from headrace.coordinator.drain import Drain, committing, not_published
from headrace.coordinator.placing.machines import HostReport
from headrace.coordinator.placing.pins import Home, Pins
from headrace.format.names import partition_prefix
from headrace.host.process.disk import is_in_memory
from headrace.plan.times import TIMES
from headrace.testing import ManualClock


def home(number: int) -> Home:
    return Home("where", partition_prefix("q", "counts", number))


class Lab:
    """Versions 3 of two partitions of one query; a host publishes them as told."""

    def __init__(self, folder: Path) -> None:
        self.blobs, self.clock = FileBlobs(folder), ManualClock()
        self.pins = Pins(lambda location: self.blobs)
        self.looks = 0
        self.done_after: dict[int, int] = {}  # looks, by partition; without one the host never gets there
        self.dropped: set[int] = set()  # partitions that no host works on
        for number in (0, 1):
            self.log(number, 3)
        self.drain = Drain(self.pins, self._statuses, self.clock)

    def log(self, number: int, version: int) -> None:
        self.pins.committed("q", "counts", home(number), summary(number, version, commit="async"))

    def _statuses(self) -> list[dict[str, object]]:
        self.looks += 1
        parts = []
        for number in (0, 1):
            is_done = self.looks > self.done_after.get(number, 10**9)
            if is_done:
                self._publish(number)
            busy = not is_done and number not in self.dropped
            step = "sealed" if busy else None
            parts.append({"query": "q", "operator": "counts", "partition": number, "committing": step})
        return [{"partitions": parts}]

    def _publish(self, number: int) -> None:
        name = f"{partition_prefix('q', 'counts', number)}/manifests/v000000000003-r00000001-a000000000000"
        if not self.blobs.list(f"{name}.manifest"):
            self.blobs.put_if_absent(f"{name}.manifest", b"")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_the_end_waits_until_all_is_published(lab: Lab) -> None:
    lab.done_after = {0: 2, 1: 5}
    assert lab.drain.wait(60) == []
    assert lab.looks == 6
    assert lab.pins.logged() == {}
    assert lab.drain.wait(60) == []
    assert lab.looks == 6, "nothing is left to look for"


def test_the_wait_has_a_limit_and_is_logged(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.done_after = {1: 3}
    with caplog.at_level(logging.WARNING, "headrace.coordinator"):
        assert lab.drain.wait(60, ["q"]) == [("q", "counts", 0)]
    assert "1 partitions are not on shared storage yet" in caplog.text
    assert lab.clock.monotonic_ms() >= 60_000
    assert lab.drain.wait(60, ["another"]) == []


def test_a_version_that_nobody_publishes_is_not_waited_for(lab: Lab) -> None:
    lab.done_after, lab.dropped = {1: 0}, {0}
    assert lab.drain.wait(60) == [("q", "counts", 0)]
    assert lab.looks == 1


def test_a_running_query_does_not_prolong_the_wait(lab: Lab) -> None:
    lab.log(0, 4)
    logged = lab.pins.logged()
    lab.log(0, 5)
    lab.log(1, 4)
    assert not any(lab.pins.lacks(key, entry) for key, entry in logged.items())


def test_what_is_left_is_named() -> None:
    error = not_published([("q", "counts", number) for number in range(7)], 60)
    assert "7 partitions" in error.message
    assert "counts 4 and 2 more" in error.message
    assert committing([{"partitions": []}, {}]) == set()


MOUNTS = """/dev/vda / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
tmpfs /run tmpfs rw 0 0
/dev/b /run/disk ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("/dev/shm/x", True), ("/var/x", False), ("/run/disk/x", False), ("/run/x/y", True)],
)
def test_memory_is_told_from_a_disk(folder: str, expected: bool) -> None:
    assert is_in_memory(Path(folder), MOUNTS) is expected
    assert not is_in_memory(Path(folder), "")


def test_a_log_in_memory_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = Coordinator(View())
    host = HostReport(1, {}, {}, "disk", in_memory=True)
    with caplog.at_level(logging.WARNING, "headrace.coordinator"):
        coordinator.heartbeat("a", host)
        assert not caplog.records, "no version is logged"
        coordinator.pins.committed("q", "counts", home(0), summary(0, 3, commit="async"))
        for _ in range(3):
            coordinator.heartbeat("a", host)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "spark.headrace.state.local of a is in memory"
    ]
    assert TIMES.drain_report_s < 60
