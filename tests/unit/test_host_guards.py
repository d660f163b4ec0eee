"""Protects a host from what others left or send: symlinks of other users on the way to its files, rows with
offsets that descend, and a log without end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.blob.copies import LocalCopies
from headrace.checkpoint.log import LocalLog
from headrace.errors import TryAgain
from headrace.host.process.settings import HostPaths, HostSettings
from headrace.wire.rows import checked

STRANGER = 12345


def make_host(local: Path) -> None:
    HostPaths.of(HostSettings("app", "m", "grpc+tcp://127.0.0.1:1", "s", str(local), 1 << 20)).make()


def make_copies(local: Path) -> None:
    LocalCopies.open(local, "s3://b/p")


def make_log(local: Path) -> None:
    LocalLog.of(local, "s3://b/p", "q/o/p0000").open()


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("link", [".", "app", "copies", "log"])
@pytest.mark.parametrize("make", [make_host, make_copies, make_log], ids=["host", "copies", "log"])
def test_a_foreign_symlink_is_refused_before_anything_is_written(
    tmp_path: Path, umask: int, make: Callable[[Path], None], link: str
) -> None:
    victim, local = tmp_path / "victim", tmp_path / "shared" / "local"
    for folder in (victim, local.parent):
        folder.mkdir()
        folder.chmod(0o777)
    if link == ".":
        place = local
    else:
        local.mkdir()
        local.chmod(0o1777)
        place = local / link
    place.symlink_to(victim)
    os.chown(place, STRANGER, STRANGER, follow_symlinks=False)
    if link in (".", {make_host: "app", make_copies: "copies", make_log: "log"}[make]):
        with pytest.raises((PermissionError, TryAgain), match="another user"):
            make(local)
    else:
        make(local)
    assert list(victim.iterdir()) == []


@pytest.mark.parametrize("make", [make_host, make_copies, make_log], ids=["host", "copies", "log"])
def test_folders_are_closed_to_others_whatever_the_umask(
    tmp_path: Path, umask: int, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "a" / "local")
    made = [tmp_path / "a", *(tmp_path / "a").glob("**")]
    assert {oct(path.stat().st_mode & 0o777) for path in made} == {"0o700"}


def strings(offsets: list[int], kind: pa.DataType) -> pa.RecordBatch:
    width = np.int64 if pa.types.is_large_string(kind) else np.int32
    buffers = [None, pa.py_buffer(np.array(offsets, width)), pa.py_buffer(b"abcdefgh")]
    return pa.record_batch({"s": pa.Array.from_buffers(kind, len(offsets) - 1, buffers)})


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()], ids=str)
@pytest.mark.parametrize("offsets", [[0, 4, 2, 8], [0, 100, 2, 8], [0, -5, 3], [3, 2, 3]])
def test_rows_with_wrong_offsets_are_refused(offsets: list[int], kind: pa.DataType) -> None:
    with pytest.raises(TryAgain, match="no valid Arrow data"):
        checked(strings(offsets, kind))


def test_rows_with_right_offsets_pass() -> None:
    rows = strings([0, 0, 3, 3, 8], pa.string())
    assert checked(rows) is rows
    assert checked(rows.slice(2, 1)).column(0).to_pylist() == [""]
    assert checked(rows.slice(0, 0)).num_rows == 0


WRITE = """
import logging, os, sys
from pathlib import Path
from headrace.host.process.log_file import RotatingLog
log = logging.getLogger("x")
log.setLevel(logging.INFO)
log.addHandler(RotatingLog(Path(sys.argv[1]), 10_000))
for number in range(2_000):
    log.info("line %d", number)
os.write(2, b"from a library")
"""


def test_the_log_of_a_host_is_renamed_before_it_is_large(tmp_path: Path) -> None:
    path = tmp_path / "host.log"
    with path.open("ab") as file:
        subprocess.run([sys.executable, "-c", WRITE, path], stdout=file, stderr=file, check=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["host.log", "host.log.1"]
    assert all(each.stat().st_size < 11_000 for each in tmp_path.iterdir())
    whole = (tmp_path / "host.log.1").read_text() + path.read_text()
    numbers = [int(line.rpartition(" ")[2]) for line in whole.splitlines() if "line" in line]
    assert numbers == list(range(numbers[0], 2_000)), "nothing between the two files is lost"
    assert path.read_text().endswith("from a library")
