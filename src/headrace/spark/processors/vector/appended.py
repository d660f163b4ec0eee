"""State rows of a vectorised function that are only ever added: a list per key, in the order of addition.

Full chunks are cells of their own, so that an addition writes the tail of its key and nothing else. The
chunks of all keys of a block are read by one request.
Threads: one task's thread.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T

from headrace.spark.processors.cells import cell_number
from headrace.spark.processors.convert import unpack
from headrace.spark.processors.keyed import Header, KeyedState
from headrace.spark.processors.requests import Keys, Requests
from headrace.spark.processors.states import ListVariable, Slot

Stored = list[list[Any]]

VARIABLE = 0  # the only one


class AppendedRows:
    """Reads and extends the state rows of keys."""

    def __init__(self, requests: Requests, schema: T.StructType) -> None:
        self._requests, self._keyed = requests, KeyedState(1, 0)
        self._list = ListVariable(Slot(self._keyed, requests, VARIABLE, 0), schema)

    def read(self, keys: Keys, headers: list[Header | None]) -> tuple[list[int], Stored]:
        """All state rows, and the position of each one's key."""
        entries = [None if header is None else header[1] for header in headers]
        chunks = [(at, n) for at, entry in enumerate(entries) if entry for n in range(entry[0])]
        cells = [cell_number(VARIABLE, chunk) for _, chunk in chunks]
        full: dict[int, Stored] = {}
        for (at, _), data in zip(
            chunks, self._requests.cells_of(keys, [at for at, _ in chunks], cells), strict=True
        ):
            assert data is not None, "a chunk that the header names exists"
            full.setdefault(at, []).extend(unpack(data))
        positions: list[int] = []
        rows: Stored = []
        for at, entry in enumerate(entries):
            own = [] if entry is None else [*full.get(at, ()), *entry[1]]
            positions += [at] * len(own)
            rows += own
        return positions, rows

    def add(self, number: int, header: Header | None, rows: Stored) -> None:
        """Adds rows to those of a key of the block."""
        self._requests.load_key(self._keyed, number, header)
        self._list.append_stored(rows)
        self._requests.store_key(self._keyed)
