"""The history of a query: its records as JSON lines beside its checkpoint, bounded, readable without Spark.

`<checkpoint>/headrace-history/<n>.jsonl`, with n from 0 to `FILES - 1`, written in turn: each holds up to
its part of the bound, and the oldest is overwritten. A file begins with the facts (query, operators) that
its records need.
Invariants: a line that a crash cut short is skipped by the reader; a new run begins a new file. A history
that cannot be written never stops a query.
Threads: the driver's monitor writes; anyone reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from headrace.errors import HeadraceError, StateMissing
from headrace.monitor.records import Record

FOLDER = "headrace-history"
FILES = 4
REWRITE_EVERY_MS = 10_000  # where files cannot grow, the current one is written anew this often


class HistoryFiles(Protocol):
    """Where the lines of a history go."""

    def restart(self, number: int, text: str) -> None:
        """File `number` begins anew with this text."""

    def append(self, number: int, text: str, at_ms: int) -> None:
        """Add text to a file."""


class LocalHistory:
    """Files that grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def restart(self, number: int, text: str) -> None:
        self._folder.mkdir(exist_ok=True)  # never the checkpoint itself: it may have been removed
        (self._folder / f"{number}.jsonl").write_text(text, encoding="utf-8")

    def append(self, number: int, text: str, at_ms: int) -> None:
        with (self._folder / f"{number}.jsonl").open("a", encoding="utf-8") as file:
            file.write(text)


class WholeFiles(Protocol):
    """Files that are only written as a whole, such as those of an object store."""

    def write(self, name: str, text: str) -> None: ...


class RewrittenHistory:
    """Files that are written as a whole, now and then."""

    def __init__(self, files: WholeFiles) -> None:
        self._files = files
        self._text = ""
        self._written_ms = 0

    def restart(self, number: int, text: str) -> None:
        self._text = text
        self._files.write(f"{FOLDER}/{number}.jsonl", text)

    def append(self, number: int, text: str, at_ms: int) -> None:
        self._text += text
        if at_ms - self._written_ms >= REWRITE_EVERY_MS or '"kind": "ended"' in text:
            self._written_ms = at_ms
            self._files.write(f"{FOLDER}/{number}.jsonl", self._text)


class HistoryWriter:
    """Writes one query's records, in turn to a few files."""

    def __init__(self, files: HistoryFiles, bytes_max: int, first: int = 0) -> None:
        self._files = files
        self._part = max(1, bytes_max // FILES)
        self._number = first % FILES
        self._size = -1  # the first write begins a file
        self._facts: dict[str, Record] = {}

    def write(self, records: list[Record], at_ms: int) -> None:
        """Add records; begins the next file when this one is full."""
        for record in records:
            if record["kind"] in ("query", "operator", "application"):
                self._facts[f"{record['kind']} {record.get('operator', '')}"] = record
        if not records:
            return
        text = _lines(records)
        if self._size >= 0 and self._size + len(text) <= self._part:
            self._files.append(self._number, text, at_ms)
            self._size += len(text)
            return
        self._number = (self._number + (self._size >= 0)) % FILES
        facts = [fact for fact in self._facts.values() if fact not in records]
        text = _lines([{"kind": "file", "at_ms": at_ms}, *facts]) + text
        self._files.restart(self._number, text)
        self._size = len(text)


def _lines(records: list[Record]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def next_file(folder: Path) -> int:
    """The file that a new run begins with: the one after the newest."""
    began = {path: _began_ms(path) for path in folder.glob("*.jsonl")}
    if not began:
        return 0
    return (int(max(began, key=lambda path: began[path]).stem) + 1) % FILES


def read_history(checkpoint: str) -> list[Record]:
    """All records of a checkpoint's history, in order; raises where there is none."""
    root = Path(checkpoint.removeprefix("file://").removeprefix("file:"))
    files = sorted((root / FOLDER).glob("*.jsonl"), key=_began_ms)
    if not files:
        raise StateMissing(
            f"{checkpoint} has no history of a Headrace query",
            hint="name the checkpoint location of a query that ran with spark.headrace.history above 0; "
            "a history on another file system must be copied here first",
        )
    return [record for path in files for record in _parsed(path)]


def _began_ms(path: Path) -> int:
    first = next(iter(_parsed(path)), None)
    return -1 if first is None else int(first["at_ms"])


def _parsed(path: Path) -> list[Record]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise HeadraceError(f"{path} cannot be read: {error}", hint="check its permissions") from None
    return [record for record in map(_record, lines) if record is not None]


def _record(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "kind" in record and "at_ms" in record else None
