"""What Headrace asks of storage: named, immutable blobs and an atomic put-if-absent.

Names are relative paths with `/` between components (`check_name`). A blob is there whole or not at all,
and once a put has returned it survives a crash of the machine. Nothing is ever overwritten.

An error of a write says what is known: `MaybeApplied` and `AlreadyExists` are to be read back, any other
error means that nothing was applied. Threads: all methods may be called from any thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Blobs(Protocol):
    """One location that holds blobs."""

    @property
    def root(self) -> str:
        """Where this is, for messages."""

    def put_if_absent(self, name: str, data: bytes) -> None:
        """Store `data` under a name that must be free; raises `AlreadyExists` or `MaybeApplied`."""

    def staging(self, name: str) -> Path:
        """A new local path for a file that `put_file` will move to `name`, without copying if it can."""

    def put_file(self, name: str, path: Path) -> None:
        """Move a finished local file to a name that must be free; `path` is gone afterwards.

        Raises as `put_if_absent` does. A write that was not applied leaves `path` as it was.
        """

    def get(self, name: str) -> bytes:
        """The whole blob; raises `BlobMissing`."""

    def size(self, name: str) -> int:
        """Its length in bytes; raises `BlobMissing`."""

    def list(self, prefix: str) -> list[str]:
        """All names that start with `prefix`, sorted; unfinished writes are not among them."""

    def delete(self, name: str) -> None:
        """Remove a blob; one that is absent is fine."""

    def sweep(self, prefix: str) -> None:
        """Remove unfinished writes under `prefix` whose writers are known to be gone."""

    def local_path(self, name: str) -> Path | None:
        """Where a reader may open the blob directly; None when the location is not a file system."""


def check_prefix(prefix: str) -> str:
    """The folder that holds every name starting with `prefix`; empty for the location itself."""
    folder = prefix.rpartition("/")[0]
    return check_name(folder) if folder or prefix.startswith("/") else ""


def check_name(name: str) -> str:
    """The name itself when it is one; a name never leaves its location and never looks unfinished."""
    parts = name.split("/")
    if any(not part or part.startswith(".") or "\\" in part or "\0" in part for part in parts):
        raise ValueError(f"not a blob name: {name!r}")
    return name
