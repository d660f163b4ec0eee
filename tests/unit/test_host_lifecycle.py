"""Protects the host's life: one start however many race, gone with its driver, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from host_fakes import counting
from pyarrow import flight

from headrace.coordinator.core import Coordinator
from headrace.coordinator.placing.machines import HostReport
from headrace.coordinator.server import CoordinatorServer
from headrace.errors import HostUnavailable
from headrace.host.process import hung
from headrace.host.process.hung import HungWatch, answers, end_hung, ended
from headrace.host.process.lifecycle import HostAddress, ensure_host, environment, find_host
from headrace.host.process.locks import lock_within, remove_socket, socket_path
from headrace.host.process.settings import HostPaths, HostSettings
from headrace.plan.times import TIMES
from headrace.spark.driver.host_calls import stop_host
from headrace.wire.calls import call, connect
from headrace.wire.client import Connections, HostClient
from headrace.wire.contract import Ticket

SECRET = "s" * 64
FAKE = "host_fakes:open_fake"


class View:
    """A Spark application that runs until it is told otherwise."""

    running = True

    def alive(self) -> bool:
        return self.running


@pytest.fixture
def view() -> View:
    return View()


@pytest.fixture
def settings(view: View, tmp_path: Path) -> Iterator[HostSettings]:
    server = CoordinatorServer(Coordinator(view), "127.0.0.1", SECRET)  # type: ignore[arg-type]
    made = settings_for(f"grpc+tcp://127.0.0.1:{server.port}", tmp_path)
    yield made
    host = find_host(made)
    if host is not None:
        os.kill(host.pid, signal.SIGTERM)
        gone(host.pid)
    server.shutdown()


def settings_for(coordinator: str, local: Path) -> HostSettings:
    return HostSettings("app", "here", coordinator, SECRET, str(local), 1 << 20, service=FAKE, warm=False)


def eventually(holds: Callable[[], bool], what: str = "") -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def gone(pid: int) -> None:
    eventually(lambda: not running(pid), f"process {pid} is still there")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or before it was read
        return False


def left(settings: HostSettings) -> set[str]:
    """What is in the application's folder besides locks."""
    return {
        path.name
        for path in HostPaths.of(settings).folder.iterdir()
        if path.suffix not in (".start", ".alive")
    }


def test_racing_threads_start_one_host(settings: HostSettings) -> None:
    addresses: list[HostAddress] = []
    threads = [threading.Thread(target=lambda: addresses.append(ensure_host(settings))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(addresses) == 6
    assert len(set(addresses)) == 1
    assert HostPaths.of(settings).log.read_text().count("INFO headrace.host: host here") == 1
    assert HostPaths.of(settings).folder.stat().st_mode & 0o777 == 0o700


def test_racing_processes_start_one_host(settings: HostSettings) -> None:
    program = textwrap.dedent("""
        import sys
        from headrace.host.process.lifecycle import ensure_host
        from headrace.host.process.settings import HostSettings
        print(ensure_host(HostSettings.from_json(sys.stdin.readline())).pid)
    """)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=-1, stdout=-1, text=True, env=environment(os.environ)
        )
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(settings.to_json() + "\n")
        racer.stdin.flush()
    pids = {racer.communicate()[0] for racer in racers}
    assert len(pids) == 1
    assert running(int(pids.pop()))


def test_sigterm_leaves_only_the_log(settings: HostSettings) -> None:
    host = ensure_host(settings)
    os.kill(host.pid, signal.SIGTERM)
    gone(host.pid)
    assert left(settings) == {"host-here.log"}


def test_a_sigterm_that_misses_the_main_thread_ends_the_host(settings: HostSettings) -> None:
    """Another thread takes the signal, so the main thread's wait is not interrupted.

    The same happens when the signal comes after the main thread's last bytecode before the wait.
    """
    host = ensure_host(HostSettings.from_json(settings.to_json().replace("open_fake", "open_masked")))
    os.kill(host.pid, signal.SIGTERM)
    try:
        gone(host.pid)
    finally:
        if running(host.pid):
            os.kill(host.pid, signal.SIGKILL)
            gone(host.pid)
    assert left(settings) == {"host-here.log"}


def test_the_stop_action_ends_it(settings: HostSettings) -> None:
    host = ensure_host(settings)
    client = connect(host.address)
    call(client, SECRET, "stop", {}, 5)
    client.close()
    gone(host.pid)
    assert left(settings) == {"host-here.log"}


def test_a_dead_host_is_not_found_while_its_lock_lingers(settings: HostSettings) -> None:
    """After a kill the kernel frees the lock with the last thread, which may take its time."""
    host = ensure_host(settings)
    os.kill(host.pid, signal.SIGKILL)
    gone(host.pid)
    lingering = lock_within(HostPaths.of(settings).alive, 60_000)
    assert lingering is not None
    try:
        assert HostPaths.of(settings).ready.exists()
        assert find_host(settings) is None
    finally:
        os.close(lingering)


def test_a_killed_host_is_replaced(settings: HostSettings) -> None:
    first = ensure_host(settings)
    os.kill(first.pid, signal.SIGKILL)
    gone(first.pid)
    assert find_host(settings) is None
    connections = Connections()
    addresses = iter([first.address])  # what a task may still remember
    client = HostClient(
        lambda again: next(addresses, "") or ensure_host(settings).address, SECRET, connections
    )
    ticket = Ticket("app", "query", counting(), 0, 0, None, 1, "/nowhere", 3)
    list(client.exchange(ticket, [], []))
    assert client.summary is not None
    second = find_host(settings)
    assert second is not None
    assert second.pid != first.pid
    assert not Path(first.address.removeprefix("grpc+unix://")).exists()
    connections.close()


def test_a_hung_host_is_ended_and_replaced(settings: HostSettings) -> None:
    """A stopped process keeps its lock and accepts connections, but answers nothing."""
    first = ensure_host(settings)
    assert answers(first.door, SECRET, 30)
    assert end_hung(settings, 30) is None
    os.kill(first.pid, signal.SIGSTOP)
    assert not answers(first.door, SECRET, 0.2)
    assert ensure_host(settings) == first, "it looks alive"
    assert end_hung(settings, 0.2) == first.pid
    gone(first.pid)
    second = ensure_host(settings)
    assert second.pid != first.pid
    assert answers(second.door, SECRET, 30)
    assert answers(first.door, SECRET, 30), "whoever talks to an ended host notices it"
    error = ended("here", first.pid)
    assert f"process {first.pid}" in error.message


def test_a_task_is_freed_from_a_host_that_hangs_in_mid_batch(
    settings: HostSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hung, "TIMES", replace(TIMES, host_watch_s=0.05, host_hung_s=0.5))
    host, connections = ensure_host(settings), Connections()
    client = HostClient(lambda again: ensure_host(settings).address, SECRET, connections)
    ticket = Ticket("app", "query", counting(), 0, 0, None, 1, "/nowhere", 3)

    def rows() -> Iterator[pa.RecordBatch]:
        os.kill(host.pid, signal.SIGSTOP)
        yield from ()

    with HungWatch(settings) as watch, pytest.raises(HostUnavailable, match="lost in mid-batch 0"):
        list(client.exchange(ticket, rows(), []))
    assert watch.ended == host.pid
    gone(host.pid)
    connections.close()


def test_a_host_that_does_not_get_ready_is_named(settings: HostSettings) -> None:
    slow = HostSettings.from_json(settings.to_json().replace("open_fake", "open_slow"))
    with pytest.raises(HostUnavailable, match=r"process \d+\) did not become ready"):
        ensure_host(slow, within_s=8)
    (pid,) = re.findall(r"\d+", HostPaths.of(settings).alive.read_text())
    os.kill(int(pid), signal.SIGKILL)
    gone(int(pid))


def test_killed_in_the_middle_is_unavailable(settings: HostSettings) -> None:
    host = ensure_host(settings)
    connections = Connections()
    client = HostClient(lambda again: ensure_host(settings).address, SECRET, connections)
    ticket = Ticket("app", "query", counting(), 0, 0, None, 1, "/nowhere", 3)

    def rows() -> Iterator[pa.RecordBatch]:
        os.kill(host.pid, signal.SIGKILL)
        gone(host.pid)
        yield from ()

    with pytest.raises(HostUnavailable, match="not committed"):
        list(client.exchange(ticket, rows(), []))
    connections.close()


def test_it_leaves_when_the_application_ends(settings: HostSettings, view: View) -> None:
    host = ensure_host(settings)
    view.running = False
    gone(host.pid)
    assert left(settings) == {"host-here.log"}


@pytest.mark.crash
def test_it_leaves_when_the_driver_is_killed(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import sys, time
        from test_host_lifecycle import SECRET, View
        from headrace.coordinator.core import Coordinator
        from headrace.coordinator.server import CoordinatorServer
        server = CoordinatorServer(Coordinator(View()), "127.0.0.1", SECRET)
        print(server.port, flush=True)
        time.sleep(600)
    """)
    driver = subprocess.Popen(
        [sys.executable, "-c", program], stdout=-1, text=True, env=environment(os.environ)
    )
    assert driver.stdout is not None
    settings = settings_for(f"grpc+tcp://127.0.0.1:{driver.stdout.readline().strip()}", tmp_path)
    host = ensure_host(settings)
    driver.kill()
    driver.wait()
    gone(host.pid)
    assert left(settings) == {"host-here.log"}
    driver.stdout.close()


def test_a_host_that_cannot_start_says_why(settings: HostSettings) -> None:
    broken = HostSettings.from_json(settings.to_json().replace("open_fake", "no_such_thing"))
    with pytest.raises(HostUnavailable, match="no_such_thing") as raised:
        ensure_host(broken)
    assert str(HostPaths.of(broken).log) in raised.value.hint
    assert left(broken) == {"host-here.log"}


def test_it_inherits_nothing(settings: HostSettings, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as mine:
        os.set_inheritable(mine.fileno(), True)
        host = ensure_host(settings)
        paths = {os.readlink(path) for path in Path(f"/proc/{host.pid}/fd").iterdir()}
    assert not {path for path in paths if path.endswith("/open")}
    assert os.getsid(host.pid) == host.pid


def test_the_secret_is_not_shown(settings: HostSettings) -> None:
    host = ensure_host(settings)
    paths = HostPaths.of(settings)
    shown = [paths.log.read_text(), paths.ready.read_text(), repr(settings)]
    shown.append(Path(f"/proc/{host.pid}/cmdline").read_text())
    shown.append(Path(f"/proc/{host.pid}/environ").read_bytes().decode(errors="replace"))
    assert not any(SECRET in text for text in shown)


def test_tcp_when_asked(settings: HostSettings) -> None:
    host = ensure_host(HostSettings.from_json(settings.to_json().replace('"tcp": false', '"tcp": true')))
    assert host.tcp is not None
    assert host.tcp.startswith("grpc+tcp://127.0.0.1:")
    client = connect(host.tcp)
    assert call(client, SECRET, "ping", {}, 5) == {"ok": True}
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(client.do_action(flight.Action("ping", b"")))
    client.close()


def test_a_deep_folder_gets_a_short_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = socket_path(tmp_path / ("d" * 120), "h.sock")
    assert len(str(path)) < 100
    assert path.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a host has a place of its own by then
    remove_socket(path)
    assert not path.parent.exists()
    assert socket_path(Path("/x"), "h.sock") == Path("/x/h.sock")


@pytest.mark.parametrize("when", ["it runs", "it was killed"])
def test_the_driver_leaves_no_folder_of_sockets(
    settings: HostSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A killed host removes neither of its two sockets, and nobody starts another one after it."""
    short = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setenv("TMPDIR", str(short))
    host = ensure_host(replace(settings, local=str(tmp_path / ("d" * 120))))
    assert len(list(short.glob("hr-*"))) == 2
    if when == "it was killed":
        os.kill(host.pid, signal.SIGKILL)
        gone(host.pid)
    stop_host(HostReport(host.pid, {"unix": host.address, "door": host.door}, {}), SECRET)
    gone(host.pid)
    assert list(short.iterdir()) == []
    short.rmdir()


def belongs_to_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() == 0:
        os.chown(path, 12345, -1)
    else:
        other = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: other)


@pytest.mark.parametrize("whose", ["the folder", "its parent"])
def test_an_address_from_another_user_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """In a directory where anyone may write, another user can be first; he must not get the secret."""
    anyones = tmp_path / "tmp"
    anyones.mkdir()
    anyones.chmod(0o1777)
    paths = HostPaths.of(settings_for("grpc+tcp://127.0.0.1:1", anyones / "headrace-me"))
    paths.make()
    paths.ready.write_text(json.dumps({"address": "grpc+unix:///theirs", "tcp": None, "pid": 1}))
    alive = lock_within(paths.alive, 1_000)
    assert alive is not None
    made = settings_for("grpc+tcp://127.0.0.1:1", anyones / "headrace-me")
    assert find_host(made) is not None
    belongs_to_another(paths.folder if whose == "the folder" else paths.folder.parent, monkeypatch)
    with pytest.raises(PermissionError, match=r"another user; set spark\.headrace\.state\.local"):
        ensure_host(made)
    os.close(alive)


def test_settings_cross_as_json(settings: HostSettings) -> None:
    assert HostSettings.from_json(json.dumps(json.loads(settings.to_json()))) == settings
