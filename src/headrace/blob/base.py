"""The contract of storage: named, immutable blobs and an atomic put-if-absent.

Names are relative paths with `/` between components (`check_name`). A blob exists whole or not at all. Once
a put has returned, the blob survives a crash of the machine. Nothing is ever overwritten.

`MaybeApplied` and `AlreadyExists` require a read-back. Any other error of a write means that it was not
applied. Threads: all methods may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

IsDamaged = Callable[[Path], bool]
Range = tuple[int, int]  # start and length


def always(copy: Path) -> bool:
    """Takes every copy for damaged."""
    return True


class Blobs(Protocol):
    """One location that holds blobs."""

    @property
    def root(self) -> str:
        """The location's path or URL, for messages."""

    @property
    def in_place(self) -> bool:
        """Whether readers open blobs where they are, because the location is a file system."""

    def put_if_absent(self, name: str, data: bytes) -> None:
        """Stores `data` under an unused name; raises `AlreadyExists` or `MaybeApplied`."""

    def staging(self, name: str) -> Path:
        """A new local path for a file that `put_file` moves to `name`, if possible without a copy."""

    def put_file(self, name: str, path: Path) -> None:
        """Moves a finished local file to an unused name; `path` no longer exists afterwards.

        Raises as `put_if_absent` does. A write that was not applied leaves `path` unchanged.
        """

    def get(self, name: str) -> bytes:
        """The whole blob; raises `BlobMissing`."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """The bytes from `start` on, fewer where the blob or the reply ends early; raises `BlobMissing`."""

    @property
    def ranges_at_once(self) -> int:
        """How many ranges `get_ranges` fetches at the same time."""

    def get_ranges(self, name: str, ranges: Sequence[Range]) -> list[bytes]:
        """The bytes of several ranges, each as `get_range` has them."""

    def size(self, name: str) -> int:
        """The blob's length in bytes; raises `BlobMissing`."""

    def list(self, prefix: str) -> list[str]:
        """All names that start with `prefix`, sorted; unfinished writes are left out."""

    def delete(self, name: str) -> None:
        """Removes a blob; a missing blob is no error."""

    def sweep(self, prefix: str) -> None:
        """Removes unfinished writes under `prefix` if their writers have ended."""

    def local_path(self, name: str) -> Path | None:
        """A local path of the blob for readers, without a request; None when its bytes are elsewhere."""

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        """Drops a damaged local copy of the blob; the next reader gets the blob again.

        False: the location keeps no copies, or this one is not damaged.
        """


def check_prefix(prefix: str) -> str:
    """The folder of every name that starts with `prefix`; empty for the location itself."""
    folder = prefix.rpartition("/")[0]
    return check_name(folder) if folder or prefix.startswith("/") else ""


def check_name(name: str) -> str:
    """Returns a valid name. A name never leaves its location and never looks unfinished."""
    parts = name.split("/")
    if any(not part or part.startswith(".") or "\\" in part or "\0" in part for part in parts):
        raise ValueError(f"not a blob name: {name!r}")
    return name
