"""Which rows Spark put into which batch of a crash round, by its own checkpoint.

One file is one batch, with one exception. Spark may be killed after its file source has logged a file and
before the batch has offsets. The next start then puts that file and the following one into one batch. Each
source has its own log.
"""

from __future__ import annotations

import json
from pathlib import Path

from headrace.testing.crash.input import Row


class NotAllRead(Exception):
    """Spark has not read all files."""


def ends_of(checkpoint: Path) -> list[tuple[int, ...]]:
    """For every batch, the number of files that each source has read by its end."""
    numbers = sorted(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal())
    if numbers != list(range(len(numbers))):
        raise NotAllRead(f"Spark has offsets of the batches {numbers}")
    ends = []
    for number in numbers:
        lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()[2:]
        ends.append(tuple(json.loads(line)["logOffset"] + 1 for line in lines))
    return ends


def batches_as_read(files: list[list[Row]], ends: list[tuple[int, ...]]) -> list[list[Row]]:
    """The rows of every batch. Of two sources the first has bids from zero on, the second the others."""
    if not ends or set(ends[-1]) != {len(files)}:
        raise NotAllRead(f"Spark has read {ends[-1] if ends else 'none'} of {len(files)} files")
    begins = [(0,) * len(ends[0]), *ends[:-1]]
    return [
        [
            row
            for source, (begin, end) in enumerate(zip(begin_offsets, ended, strict=True))
            for row in (row for file in files[begin:end] for row in file)
            if len(ended) == 1 or (row.bid < 0) == bool(source)
        ]
        for begin_offsets, ended in zip(begins, ends, strict=True)
    ]
