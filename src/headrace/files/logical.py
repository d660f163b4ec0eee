"""What a file is, apart from where its bytes are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LogicalFile:
    """One immutable file.

    The id of a named file is its name relative to the partition, as manifests have it. A staged file has a
    temporary id until a commit names it.
    """

    id: str
    kind: str  # what its rows are to the store that wrote it
    size: int
    checksum: int
