"""The local log: the changes of a batch on the machine's own disk, until shared storage has them.

    <local>/log/<digest of the location>/<query>/<operator>/p<partition>/
        v<version>-r<run>-a<attempt>.log       one entry per epoch
        v….log.damaged                         an entry that a power loss tore; nothing reads it
        segments/v…-s….segment                 sealed, perhaps not on shared storage (`files.local`)

An entry is the magic line, the raw rows of the epoch, a JSON body, and a trailer of fixed length:

    headrace log 1 LF  <arrays> <body>  <body's length, 16 hex digits> <CRC-32 of the body, 8 hex digits> LF

The body has the length and the CRC-32 of every array. It also has all fields of the manifest, so that any
process of the machine can seal, upload and publish the entry.

Invariants: an entry has its name only when it is whole. Without `fsync` nothing is synced: an entry
outlives any process, and a power loss may leave its name without its content (`log_check`).
Threads: any; there is no state beside the files, except that the folders were made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from headrace.blob.unfinished import hidden_name
from headrace.errors import Fenced, StateCorrupt
from headrace.files.local import SEGMENTS, LocalFolder, sync_file, sync_folders, writing
from headrace.format.manifest import Manifest, decode, encode
from headrace.format.names import Attempt
from headrace.row.run import Run
from headrace.store.base.files import Sections

FOLDER = "log"
DAMAGED = ".damaged"
_MAGIC = b"headrace log 1\n"
_TRAILER = re.compile(rb"([0-9a-f]{16})([0-9a-f]{8})\n")
_TRAILER_BYTES = 25
_ENTRY = re.compile(r"v(\d{12})-r(\d{8})-a(\d{12})\.log", re.ASCII)
_LOST = "if shared storage lacks the version too, hr.start or `headrace recover` takes the batch back"


@dataclass(frozen=True)
class Planned:
    """Rows that the seal will flush as the segment `name`."""

    name: str  # relative to the partition
    kind: str
    sections: Sections


@dataclass(frozen=True)
class LogEntry:
    """One epoch after its first acknowledgement.

    `manifest` names the segments that existed when the epoch was logged; those of `planned` follow them.
    """

    manifest: Manifest
    parent: str | None  # name of the parent's manifest, relative to the partition
    spec: str  # the operator, as JSON
    local: frozenset[str]  # segments of `manifest` that shared storage may lack
    planned: tuple[Planned, ...]


class LocalLog(LocalFolder):
    """The log of one partition, beside its local files."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        super().__init__(folder)
        self.fsync = fsync  # whether an acknowledged entry survives a power loss
        self._has_synced_folders = False

    @classmethod
    def of(cls, local: Path, location: str, prefix: str, *, fsync: bool = False) -> LocalLog:
        digest = hashlib.sha256(location.encode()).hexdigest()[:16]
        return cls(local / FOLDER / digest / prefix, fsync=fsync)

    def draft(self, planned: Sequence[Planned]) -> Draft:
        """Writes the rows of an entry that has no name yet."""
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
        """The attempts that have an entry, oldest first."""
        try:
            names = [_ENTRY.fullmatch(path.name) for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(Attempt(int(m[1]), int(m[2]), int(m[3])) for m in names if m is not None)

    def read(self, attempt: Attempt) -> LogEntry:
        """Reads and verifies an entry; raises `StateCorrupt`."""
        path = self._path(attempt)
        with path.open("rb") as file:
            body = _body(path, file)
            file.seek(len(_MAGIC))
            planned = tuple(_read_rows(path, file, part) for part in body["planned"])
        manifest = decode(body["manifest"].encode(), str(path))
        return LogEntry(manifest, body["parent"], body["spec"], frozenset(body["local"]), planned)

    def remove(self, attempt: Attempt) -> None:
        """Removes the entry of an epoch that is published or fenced."""
        self._path(attempt).unlink(missing_ok=True)

    def sync_names(self) -> None:
        """Brings the names of entries to the disk, and once those of the folders; only with `fsync`."""
        if self.fsync and self._has_synced_folders:
            sync_file(self.folder)
        elif self.fsync:
            sync_folders(self.folder)
            self._has_synced_folders = True

    def set_aside(self, attempt: Attempt) -> Path:
        """Renames a damaged entry, so that it counts as missing; returns its new path."""
        path = self._path(attempt)
        aside = path.with_name(path.name + DAMAGED)
        with writing(path), contextlib.suppress(FileNotFoundError):  # another process was faster
            path.rename(aside)
        return aside

    def set_aside_of(self, version: int) -> list[Path]:
        """The damaged entries of a version."""
        return sorted(self.folder.glob(f"v{version:012d}-*.log{DAMAGED}"))

    def close(self) -> None:
        """Removes the folders of a query that has ended, as far as they are empty."""
        self.is_open = False
        of_query = (self.folder, *self.folder.parents[:3])  # partition, operator, query, location
        for folder in (self.folder / SEGMENTS, *of_query):
            try:
                folder.rmdir()
            except OSError:  # something is in it, or another host was faster
                return

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
        """Writes the body and names the entry; entries that it replaces are removed.

        Raises `Fenced` where a newer entry exists: its epoch may be acknowledged and not published yet.
        """
        self._refuse_newer(manifest.written_by)
        body = {"manifest": encode(manifest).decode(), "parent": parent, "spec": spec, "local": list(local)}
        text = json.dumps({**body, "planned": self.rows}).encode()
        target = self.log._path(manifest.written_by)
        with writing(target):
            self.file.write(text + f"{len(text):016x}{zlib.crc32(text):08x}\n".encode())
            self._sync(local)
            self.file.close()
            self.path.rename(target)
            self.log.sync_names()
        for other in self.log.entries():
            if _replaces(manifest.written_by, other):
                self.log.remove(other)

    def _sync(self, local: Sequence[str]) -> None:
        """Brings the entry and the files that it needs to the disk, before it has its name."""
        if not self.log.fsync:
            return
        self.file.flush()
        os.fsync(self.file.fileno())
        for name in local:
            sync_file(self.log.file(name))
        sync_file(self.log.folder / SEGMENTS)

    def _refuse_newer(self, mine: Attempt) -> None:
        newer = [entry for entry in self.log.entries() if _age(entry) > _age(mine)]
        if newer:
            path = self.log._path(max(newer, key=_age))
            raise Fenced(
                f"run {mine.run} cannot log version {mine.version}: the newer entry {path} exists",
                hint="nothing to do if a newer start of the query goes on; where the state location was "
                "emptied on purpose, remove that file",
            )

    def discard(self) -> None:
        """Removes the entry of an aborted batch."""
        _throw_away(self.file, self.path)


def _age(attempt: Attempt) -> tuple[int, int, int]:
    """Orders entries by the time of their logging.

    Spark's attempts grow within a run. A later attempt, or a later run, may log a lower version again.
    """
    return attempt.run, attempt.attempt, attempt.version


def _replaces(mine: Attempt, other: Attempt) -> bool:
    """Whether no start can need the entry `other` any more.

    A higher version stays, although an earlier start logged it. It may be acknowledged and not published,
    while this start belongs to a driver that was away for a while and has gone back.
    """
    return _age(other) < _age(mine) and other.version <= mine.version


def _throw_away(file: IO[bytes], path: Path) -> None:
    """Removes a file even if closing it fails, as it does on a full disk."""
    with contextlib.suppress(OSError):
        file.close()
    path.unlink(missing_ok=True)


def _write_rows(file: IO[bytes], planned: Planned) -> dict[str, Any]:
    sections = [[number, [write_run(file, run) for run in runs]] for number, runs in planned.sections]
    return {"name": planned.name, "kind": planned.kind, "sections": sections}


def write_run(file: IO[bytes], run: Run) -> list[int]:
    checksum = 0
    for array in (run.order, run.words, run.heap):
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


def _read_rows(path: Path, file: IO[bytes], part: dict[str, Any]) -> Planned:
    sections = [
        (int(number), [_read_run(path, file, *run) for run in runs]) for number, runs in part["sections"]
    ]
    return Planned(part["name"], part["kind"], sections)


def _read_run(path: Path, file: IO[bytes], rows: int, width: int, heap_bytes: int, checksum: int) -> Run:
    hashes = np.fromfile(file, np.uint64, rows)
    words = np.fromfile(file, np.uint64, rows * width)
    heap = np.fromfile(file, np.uint8, heap_bytes)
    actual = 0
    for array in (hashes, words, heap):
        actual = zlib.crc32(_bytes(array), actual)
    if actual != checksum:  # short arrays fail it too
        raise _damaged(path, "its rows fail their checksum")
    return Run(hashes, words.reshape(rows, width), heap)


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    if not array.size:
        return memoryview(b"")
    return memoryview(np.ascontiguousarray(array)).cast("B")  # type: ignore[arg-type]


def _damaged(path: Path, reason: str) -> StateCorrupt:
    return StateCorrupt(f"the log entry {path} is damaged: {reason}", hint=_LOST)
