"""The records of one operator in Spark's checkpoint, numbered like the entries of Spark's own logs.

`<checkpoint>/headrace-operators/<name>.log/<number>`, each with a checksum, each made only where there is
none. The newest one counts. Releases before wrote one file, `<name>.json`, and replaced it at every batch:
it is read where there is no numbered record, and removed after the first one.

Invariants: a number has one writer, so of two drivers on one checkpoint the slower one is fenced. A damaged
newest record raises: the one before it may lack a batch that Spark has committed.
Threads: the caller's lock guards a `RecordLog`.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.checkpoint.records import FOLDER, OperatorRecord, ReadFiles, SmallFiles, at_home, record_name
from headrace.errors import Fenced, StateMissing
from headrace.format.names import component
from headrace.format.record import corrupt, decode_record, encode_record

FORMAT_VERSION = 1
KEPT = 10  # records: only the newest is read, the others are for people
_KIND = "record"
_LOG, _OLD = ".log", ".json"
_NUMBER = re.compile(r"\d{8}", re.ASCII)
_READS = 3  # a running query may remove a record between the listing and the read


def log_folder(operator: str) -> str:
    """The folder of an operator's records, relative to the checkpoint."""
    return f"{FOLDER}/{component(operator)}{_LOG}"


def stored_record(files: ReadFiles, operator: str) -> OperatorRecord | None:
    """The newest record of an operator; None when there is none."""
    return _newest(files, component(operator))[1]


def stored_records(files: ReadFiles) -> dict[str, OperatorRecord]:
    """The newest records of all operators of a checkpoint, by name."""
    names = files.list(FOLDER)
    stems = {name[: -len(end)] for name in names for end in (_LOG, _OLD) if name.endswith(end)}
    newest = [_newest(files, stem)[1] for stem in sorted(stems)]
    return {record.spec.name: record for record in newest if record is not None}


class RecordLog:
    """The records of one operator, read once and then written by one run of its query."""

    def __init__(self, files: SmallFiles, operator: str) -> None:
        self._files, self._stem = files, component(operator)
        self._folder, self._old = log_folder(operator), record_name(operator)
        self._number, self.record = _newest(files, self._stem)

    @property
    def where(self) -> str:
        """The folder of the records, for messages."""
        return f"{self._files.root}/{self._folder}"

    def put(self, record: OperatorRecord, run: str) -> None:
        """Writes the next record; raises `Fenced` where another run has written that one."""
        number = self._number + 1
        body = {**record.body(self._files.root), "number": number, "run": run}
        name, text = self._name(number), encode_record(_KIND, FORMAT_VERSION, body).decode()
        if not self._files.put(name, text) and self._files.read(name) != text:
            raise Fenced(
                f"another start of the query has written {self._files.root}/{name}",
                hint="nothing to do if that start is meant; otherwise stop it, then start this again",
            )
        self._number, self.record = number, record
        self._drop_older()

    def _drop_older(self) -> None:
        if self._number == 1:
            self._files.remove(self._old)  # an older release would start from a batch that is over
        elif self._number > KEPT:
            self._files.remove(self._name(self._number - KEPT))

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:08d}"


def _newest(files: ReadFiles, stem: str) -> tuple[int, OperatorRecord | None]:
    """The number and the record that count; number 0 for a record of a release before, and for none."""
    folder = f"{FOLDER}/{stem}{_LOG}"
    for _ in range(_READS):
        number = max((int(name) for name in files.list(folder) if _NUMBER.fullmatch(name)), default=0)
        if number == 0:
            name = f"{FOLDER}/{stem}{_OLD}"
            text = files.read(name)
            if text is None:
                return 0, None
            return 0, at_home(OperatorRecord.from_json(text, f"{files.root}/{name}"), files)
        text = files.read(f"{folder}/{number:08d}")
        if text is not None:
            return number, _decode(text, number, files.root, f"{files.root}/{folder}/{number:08d}")
    raise StateMissing(
        f"{files.root}/{folder} changes too quickly to be read",
        hint="try again, or stop the query that writes it",
    )


def _decode(text: str, number: int, root: str, where: str) -> OperatorRecord:
    body: dict[str, Any] = decode_record(
        _KIND, FORMAT_VERSION, text.encode("utf-8", "surrogateescape"), where
    )
    if body.get("number") != number:
        raise corrupt(_KIND, where, f"it is number {body.get('number')}, so it was copied or renamed")
    try:
        return OperatorRecord.of(body, root)
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt(_KIND, where, f"its fields are not those of a record ({error})") from error
