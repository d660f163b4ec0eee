"""The local log: what a batch changed, on the machine's own disk, until shared storage has it.

    <local>/log/<digest of the location>/<query>/<operator>/p<partition>/
        v<version>-r<run>-a<attempt>.log       one entry per epoch
        segments/v…-s….segment                 sealed, not yet known to be on shared storage

An entry is the magic line, the raw rows of the epoch, a JSON body, and a trailer of fixed length:

    headrace log 1 LF  <arrays> <body>  <body's length, 16 hex digits> <CRC-32 of the body, 8 hex digits> LF

The body says for every array how long it is and its CRC-32. It also says all that the manifest will say, so
that whoever reads an entry can seal, upload and publish it.

Invariants: an entry has its name only when it is whole; nothing here is flushed to the disk, so it outlives
any process and not the machine.
Threads: any; there is no state beside the files, except that the folders were made.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from headrace.blob.unfinished import hidden_name, is_alive, is_left_behind, this_machine
from headrace.errors import StateCorrupt, TryAgain
from headrace.format.manifest import Manifest, decode, encode
from headrace.format.names import Attempt, parse_segment
from headrace.store.contract import Sections
from headrace.store.run import Run

FOLDER = "log"
_MAGIC = b"headrace log 1\n"
_TRAILER = re.compile(rb"([0-9a-f]{16})([0-9a-f]{8})\n")
_TRAILER_BYTES = 25
_ENTRY = re.compile(r"v(\d{12})-r(\d{8})-a(\d{12})\.log", re.ASCII)
_LOST = "if shared storage lacks the version too, hr.start or `headrace recover` takes the batch back"


@dataclass(frozen=True)
class Planned:
    """Rows that will be the segment `name`."""

    name: str  # relative to the partition
    kind: str
    sections: Sections


@dataclass(frozen=True)
class LogEntry:
    """One epoch after its first acknowledgement.

    `manifest` names the segments that existed when it was logged; those of `planned` come after them.
    """

    manifest: Manifest
    parent: str | None  # name of the parent's manifest, relative to the partition
    spec: str  # the operator, as JSON
    local: frozenset[str]  # segments of `manifest` that shared storage may lack
    planned: tuple[Planned, ...]


class LocalLog:
    """The log of one partition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_open = False

    @classmethod
    def of(cls, local: Path, location: str, prefix: str) -> LocalLog:
        digest = hashlib.sha256(location.encode()).hexdigest()[:16]
        return cls(local / FOLDER / digest / prefix)

    def open(self) -> None:
        """Make the folders, closed to other users, and remove what dead processes left unfinished."""
        if self.is_open:
            return
        segments = self.folder / "segments"
        with writing(segments):
            segments.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.folder.lstat().st_uid != os.getuid():
                raise PermissionError(errno.EACCES, "it belongs to another user")
            self.folder.chmod(0o700)
        machine = this_machine()
        for path in (*self.folder.iterdir(), *segments.iterdir()):
            if is_left_behind(path.name, machine, is_alive):
                path.unlink(missing_ok=True)
        self.is_open = True

    def file(self, name: str) -> Path:
        """Where the segment `name` lies if it is here."""
        return self.folder / name

    def staging(self) -> Path:
        """A new hidden place for a segment."""
        return self.folder / "segments" / hidden_name()

    def draft(self, planned: Sequence[Planned]) -> Draft:
        """Begin an entry: its rows are written, it has no name yet."""
        path = self.folder / hidden_name()
        with writing(path):
            file = path.open("xb")
            try:
                file.write(_MAGIC)
                rows = [_write_rows(file, part) for part in planned]
                return Draft(self, path, file, rows, file.tell() - len(_MAGIC))
            except BaseException:
                _throw_away(file, path)
                raise

    def entries(self) -> list[Attempt]:
        """The epochs that are logged, oldest first."""
        try:
            found = [_ENTRY.fullmatch(path.name) for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(Attempt(int(m[1]), int(m[2]), int(m[3])) for m in found if m is not None)

    def read(self, attempt: Attempt) -> LogEntry:
        """The entry, verified; raises `StateCorrupt`."""
        path = self._path(attempt)
        with path.open("rb") as file:
            body = _body(path, file)
            file.seek(len(_MAGIC))
            planned = tuple(_read_rows(path, file, said) for said in body["planned"])
        manifest = decode(body["manifest"].encode(), str(path))
        return LogEntry(manifest, body["parent"], body["spec"], frozenset(body["local"]), planned)

    def remove(self, attempt: Attempt) -> None:
        """The entry is not needed: it is published, or was overtaken."""
        self._path(attempt).unlink(missing_ok=True)

    def remove_segments(self, published: Attempt) -> None:
        """Remove what was sealed up to an attempt that is published.

        A newer attempt at the same version may have been sealed meanwhile, here or by another host with the
        same log, and is not on shared storage yet.
        """
        with contextlib.suppress(FileNotFoundError):
            for path in (self.folder / "segments").iterdir():
                parsed = parse_segment(path.name)
                if parsed is not None and parsed.attempt <= published:
                    path.unlink(missing_ok=True)

    def _path(self, attempt: Attempt) -> Path:
        return self.folder / f"v{attempt.version:012d}-r{attempt.run:08d}-a{attempt.attempt:012d}.log"


@dataclass(frozen=True)
class Draft:
    """An entry whose rows are written."""

    log: LocalLog
    path: Path
    file: IO[bytes]
    rows: list[dict[str, Any]]
    row_bytes: int

    def finish(self, manifest: Manifest, parent: str | None, spec: str, local: Sequence[str]) -> None:
        """Give the entry its body and its name; it takes the place of all others."""
        said = {"manifest": encode(manifest).decode(), "parent": parent, "spec": spec, "local": list(local)}
        text = json.dumps({**said, "planned": self.rows}).encode()
        target = self.log._path(manifest.written_by)
        with writing(target):
            self.file.write(text + f"{len(text):016x}{zlib.crc32(text):08x}\n".encode())
            self.file.close()
            self.path.rename(target)
        for other in self.log.entries():
            if other != manifest.written_by:
                self.log.remove(other)

    def discard(self) -> None:
        """The batch was aborted."""
        _throw_away(self.file, self.path)


def _throw_away(file: IO[bytes], path: Path) -> None:
    """Closing writes what is buffered, which a full disk refuses; the file must go all the same."""
    with contextlib.suppress(OSError):
        file.close()
    path.unlink(missing_ok=True)


def _write_rows(file: IO[bytes], planned: Planned) -> dict[str, Any]:
    said = [[number, [_write_run(file, run) for run in runs]] for number, runs in planned.sections]
    return {"name": planned.name, "kind": planned.kind, "sections": said}


def _write_run(file: IO[bytes], run: Run) -> list[int]:
    checksum = 0
    for array in (run.hashes, run.words, run.heap):
        part = _bytes(array)
        file.write(part)
        checksum = zlib.crc32(part, checksum)
    return [len(run), run.words.shape[1], run.heap.size, checksum]


def _body(path: Path, file: IO[bytes]) -> dict[str, Any]:
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - _TRAILER_BYTES))
    trailer = _TRAILER.fullmatch(file.read())
    if trailer is None:
        raise _damaged(path, "it is not whole")
    end = size - _TRAILER_BYTES
    start = end - int(trailer[1], 16)
    if start < len(_MAGIC):
        raise _damaged(path, "it is not whole")
    file.seek(start)
    text = file.read(end - start)
    if zlib.crc32(text) != int(trailer[2], 16):
        raise _damaged(path, "its body fails its checksum")
    file.seek(0)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _damaged(path, "it begins like something else")
    body: dict[str, Any] = json.loads(text)
    return body


def _read_rows(path: Path, file: IO[bytes], said: dict[str, Any]) -> Planned:
    sections = [
        (int(number), [_read_run(path, file, *run) for run in runs]) for number, runs in said["sections"]
    ]
    return Planned(said["name"], said["kind"], sections)


def _read_run(path: Path, file: IO[bytes], rows: int, width: int, heap_bytes: int, checksum: int) -> Run:
    hashes = np.fromfile(file, np.uint64, rows)
    words = np.fromfile(file, np.uint64, rows * width)
    heap = np.fromfile(file, np.uint8, heap_bytes)
    found = 0
    for array in (hashes, words, heap):
        found = zlib.crc32(_bytes(array), found)
    if found != checksum:  # short arrays fail it too
        raise _damaged(path, "its rows fail their checksum")
    return Run(hashes, words.reshape(rows, width), heap)


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    if not array.size:
        return memoryview(b"")
    return memoryview(np.ascontiguousarray(array)).cast("B")  # type: ignore[arg-type]


def _damaged(path: Path, reason: str) -> StateCorrupt:
    return StateCorrupt(f"the log entry {path} is damaged: {reason}", hint=_LOST)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says about a write to the local disk into an error of ours."""
    try:
        yield
    except OSError as error:
        raise TryAgain(
            f"cannot write to the local disk at {path}: {error.strerror or error}",
            hint="free space there, or set spark.headrace.state.local to another directory of your own; "
            "nothing was lost, the batch is tried again",
        ) from error
