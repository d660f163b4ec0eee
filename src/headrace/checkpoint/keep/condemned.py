"""Lists of files that a collector is about to delete.

    <query>/<operator>/condemned/<id>

Whoever pins files writes the pin first and reads these lists then; a collector writes its list first and
reads the pins then. So where a file is pinned and condemned at the same time, at least one side reads
the other's record. A list of a collector that died stays until another one has finished its work: no pin
may name these files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.blob.base import Blobs
from headrace.checkpoint.keep.pins import pinned_files
from headrace.errors import BlobMissing
from headrace.format.record import corrupt, decode_record, encode_record
from headrace.plan.ids import new_write_id

FORMAT_VERSION = 1
_KIND = "condemned"


@dataclass
class Listed:
    """A list on storage; it goes once the collector has deleted its files."""

    is_done: bool = False


@contextmanager
def condemn(blobs: Blobs, prefix: str, names: Sequence[str]) -> Iterator[Listed]:
    """Lists files for the time of their deletion; a collector that fails leaves the list."""
    name = f"{_folder(prefix)}{new_write_id()}"
    blobs.put_if_absent(name, encode_record(_KIND, FORMAT_VERSION, {"files": list(names)}))
    listed = Listed()
    yield listed
    if listed.is_done:
        blobs.delete(name)


def condemned_files(blobs: Blobs, prefix: str) -> set[str]:
    """All files on the lists of an operator."""
    return {file for name in blobs.list(_folder(prefix)) for file in _files(blobs, name)}


def finish_condemned(blobs: Blobs, prefix: str, names: Sequence[str]) -> bool:
    """Does the work of collectors that died, whose lists are among `names`; whether there was any.

    One that is alive finds its files deleted.
    """
    lists = [name for name in names if name.startswith(_folder(prefix))]
    pinned = pinned_files(blobs, prefix) if lists else set()
    for name in lists:
        for file in _files(blobs, name):
            if file not in pinned:
                blobs.delete(file)
        blobs.delete(name)
    return bool(lists)


def _files(blobs: Blobs, name: str) -> list[str]:
    try:
        body = decode_record(_KIND, FORMAT_VERSION, blobs.get(name), f"{blobs.root}/{name}")
    except BlobMissing:  # its collector has just finished
        return []
    files = body.get("files")
    if not isinstance(files, list):
        raise corrupt(_KIND, f"{blobs.root}/{name}", "it lists no files")
    return [str(file) for file in files]


def _folder(prefix: str) -> str:
    return f"{prefix}/condemned/"
