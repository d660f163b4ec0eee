"""Which rows Spark put into which batch of a crash round, by its own checkpoint.

One file is one batch, unless Spark was killed after its file source had noted a file and before the batch
had offsets: the next start puts that file and the following one into one batch. Each source has its log.
"""

from __future__ import annotations

import json
from pathlib import Path

from headrace.testing.crash_input import Row


class NotAllRead(Exception):
    """Spark has not been through all files."""


def ends_of(checkpoint: Path) -> list[tuple[int, ...]]:
    """For every batch, how many files each of the query's sources has read by its end."""
    numbers = sorted(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal())
    if numbers != list(range(len(numbers))):
        raise NotAllRead(f"Spark has offsets of the batches {numbers}")
    found = []
    for number in numbers:
        lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()[2:]
        found.append(tuple(json.loads(line)["logOffset"] + 1 for line in lines))
    return found


def batches_as_read(files: list[list[Row]], ends: list[tuple[int, ...]]) -> list[list[Row]]:
    """The rows of every batch; of two sources the first has the bids from zero on, the second the rest."""
    if not ends or set(ends[-1]) != {len(files)}:
        raise NotAllRead(f"Spark has read {ends[-1] if ends else 'none'} of {len(files)} files")
    begins = [(0,) * len(ends[0]), *ends[:-1]]
    return [
        [
            row
            for source, (begin, end) in enumerate(zip(begun, ended, strict=True))
            for row in (row for file in files[begin:end] for row in file)
            if len(ended) == 1 or (row.bid < 0) == bool(source)
        ]
        for begun, ended in zip(begins, ends, strict=True)
    ]
