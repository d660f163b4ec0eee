"""The requests of a measurement, from the log that the storage keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Logged:
    """A request that storage has answered."""

    operation: str
    name: str
    nbytes: int


def logged(path: Path) -> Iterator[Logged]:
    """The requests in a log, in order; none where no request was made."""
    if path.exists():
        for line in path.read_text().splitlines():
            yield Logged(**json.loads(line))
