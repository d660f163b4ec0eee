"""Event ranges as record batches: which events a view has, and how the wide view is assembled.

A generator has no state beyond its configuration and the channel table, which never change; it may be used
from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.generators.nexmark.auctions import auctions
from headrace.generators.nexmark.bids import bids
from headrace.generators.nexmark.channels import Channels
from headrace.generators.nexmark.config import NexmarkConfig
from headrace.generators.nexmark.draws import I64
from headrace.generators.nexmark.ids import AUCTION_KIND, BID_KIND, PERSON_KIND, event_ids, kinds
from headrace.generators.nexmark.persons import persons
from headrace.generators.nexmark.schema import ALL, VIEWS, schema
from headrace.generators.nexmark.slices import Slice
from headrace.generators.nexmark.text import offsets_of, strings

_BLOCK_EVENTS = 1 << 16
_RARE_BLOCK_EVENTS = 1 << 19
"""Persons and auctions are a small part of the events, so their batches span more of them."""


class NexmarkGenerator:
    """Generates the events of one configuration.

    Examples
    --------
    >>> generator = NexmarkGenerator(NexmarkConfig(seed=7))
    >>> generator.batch("bid", 0, 100).num_rows
    92
    >>> generator.batch("bid", 50, 100).equals(generator.batch("bid", 0, 100).slice(46))
    True
    """

    def __init__(self, config: NexmarkConfig | None = None) -> None:
        self.config = config or NexmarkConfig()
        self._channels = Channels.of(self.config.seed)

    def batch(self, view: str, start: int, stop: int) -> pa.RecordBatch:
        """The rows of `view` among events `start` … `stop - 1`, in emission order."""
        schema(view)
        ids = event_ids(start, stop, self.config.out_of_order_group)
        event_kinds = kinds(ids)
        if view == "all":
            return self._wide(Slice.of(ids, self.config), event_kinds)
        kind = VIEWS.index(view) - 1
        return self._entity(kind, Slice.of(ids[event_kinds == kind], self.config))

    def batches(self, view: str, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The same rows as `batch`, in pieces of at most 65,536; empty pieces are left out."""
        step = _RARE_BLOCK_EVENTS if view in ("person", "auction") else _BLOCK_EVENTS
        for at in range(start, stop, step):
            batch = self.batch(view, at, min(at + step, stop))
            if batch.num_rows:
                yield batch

    def without_bids(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The rows of the view `all` that are persons or auctions, in pieces; bids are not generated."""
        for at in range(start, stop, _RARE_BLOCK_EVENTS):
            ids = event_ids(at, min(at + _RARE_BLOCK_EVENTS, stop), self.config.out_of_order_group)
            ids = ids[kinds(ids) != BID_KIND]
            if len(ids):
                yield self._wide(Slice.of(ids, self.config), kinds(ids))

    def _entity(self, kind: int, events: Slice) -> pa.RecordBatch:
        if kind == PERSON_KIND:
            return persons(events)
        return auctions(events) if kind == AUCTION_KIND else bids(events, self._channels)

    def _wide(self, events: Slice, event_kinds: I64) -> pa.RecordBatch:
        structs = []
        for kind in (PERSON_KIND, AUCTION_KIND, BID_KIND):
            rows = np.flatnonzero(event_kinds == kind)
            structs.append(_spread_struct(self._entity(kind, events.at(rows)), rows, event_kinds != kind))
        columns = [pa.array(event_kinds.astype(np.int32)), *structs, events.timestamps()]
        return pa.RecordBatch.from_arrays(columns, schema=ALL)


def _spread_struct(
    entity: pa.RecordBatch, rows: I64, absent: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pa.Array:
    """A struct column as long as `absent`: the entity's rows at `rows`, null elsewhere."""
    children = [_spread(column, rows, len(absent)) for column in entity.columns]
    return pa.StructArray.from_arrays(children, fields=list(entity.schema), mask=pa.array(absent))


def _spread(column: pa.Array, rows: I64, length: int) -> pa.Array:
    """`column` with its values at `rows`; the struct's null mask hides the rows in between."""
    if column.type == pa.string():
        return _spread_strings(column, rows, length)
    values = np.zeros(length, dtype=np.int64)
    values[rows] = column.view(pa.int64()).to_numpy()
    return pa.array(values).view(column.type)


def _spread_strings(column: pa.Array, rows: I64, length: int) -> pa.Array:
    """Strings at `rows`: the bytes are reused, only the offsets are new."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32, count=len(column) + 1)
    lengths = np.zeros(length, dtype=np.int64)
    lengths[rows] = np.diff(ends)
    return strings(offsets_of(lengths), data)
