"""Ranges of records as Arrow batches, for any kind of record.

A record is a pure function of (options, its number), so any range can be generated anywhere and any number
of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.generators.nexmark.draws import I64, Draws
from headrace.generators.records.lines import Bytes, lines
from headrace.generators.records.options import SourceOptions

TIME = pa.timestamp("us", tz="UTC")
TEXT = pa.schema([("value", pa.string())])
_BLOCK_RECORDS = 1 << 16


@dataclass(frozen=True)
class Numbered:
    """Records to generate: their numbers, their event times in seconds, their draws."""

    options: SourceOptions
    numbers: I64
    seconds: I64  # since the stream began
    draws: Draws

    @property
    def times_s(self) -> I64:
        """Event times, in seconds since 1970."""
        return self.options.base_time_s + self.seconds

    def timestamps(self) -> pa.Array:
        return pa.array(self.times_s * 1_000_000).view(TIME)


@dataclass(frozen=True)
class Kind:
    """One kind of records: its columns, and functions that generate rows and text."""

    name: str
    schema: pa.Schema
    rows: Callable[[Numbered], pa.RecordBatch]
    fields: Callable[[Numbered], list[Bytes]]

    def schema_of(self, view: str) -> pa.Schema:
        return self.schema if view == "rows" else TEXT

    def batch(self, options: SourceOptions, start: int, stop: int) -> pa.RecordBatch:
        """The records `start` … `stop - 1` in the view of the options."""
        numbers = np.arange(start, stop, dtype=np.int64)
        draws = Draws.of(options.traffic.seed, numbers)
        some = Numbered(options, numbers, options.traffic.seconds_of(start, stop), draws)
        if options.view == "rows":
            return self.rows(some)
        return pa.RecordBatch.from_arrays([lines(self.fields(some))], schema=TEXT)

    def batches(self, options: SourceOptions, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The same rows in pieces of at most 65,536 records."""
        for at in range(start, stop, _BLOCK_RECORDS):
            yield self.batch(options, at, min(at + _BLOCK_RECORDS, stop))
