"""State variables as user code sees them: PySpark's own classes over the state of the current key."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState

from headrace.spark.processors.cells import KeyCells, cell_number
from headrace.spark.processors.convert import RowConverter, pack, unpack
from headrace.spark.processors.keyed import KeyedState
from headrace.spark.processors.rows import row_maker

LIST_CHUNK = 256  # items of a full chunk
MAP_BUCKET = 128  # mean entries of a bucket


class Slot:
    """One variable's place in the state of the current key."""

    __slots__ = ("cells", "index", "keyed", "place", "ttl_ms")

    def __init__(self, keyed: KeyedState, cells: KeyCells, index: int, ttl_ms: int) -> None:
        self.keyed, self.cells, self.index, self.ttl_ms = keyed, cells, index, ttl_ms
        self.place = index + 1  # among the entries of a header, after the timers

    def stamp(self, stored: Any) -> Any:
        """A stored value with its expiry, if the variable has a time to live."""
        if not self.ttl_ms:
            return stored
        expiry = self.keyed.now_ms + self.ttl_ms
        self.keyed.remind(expiry)
        return [stored, expiry]

    def live(self, stamped: Any) -> Any:
        """The stored value; None if it has expired."""
        if not self.ttl_ms:
            return stamped
        return stamped[0] if self.keyed.now_ms < stamped[1] else None

    def set(self, entry: Any) -> None:
        self.keyed.entries[self.place] = entry
        self.keyed.dirty = True

    def read(self, index: int) -> Any:
        data = self.cells.read([cell_number(self.index, index)])[0]
        return None if data is None else unpack(data)

    def write(self, index: int, content: Any) -> None:
        self.cells.write(cell_number(self.index, index), None if content is None else pack(content))


class ValueVariable(ValueState):  # type: ignore[misc]
    """A single value per key."""

    def __init__(self, slot: Slot, schema: T.StructType) -> None:
        self._slot, self._rows = slot, RowConverter(schema)

    def exists(self) -> bool:
        slot = self._slot
        entry = slot.keyed.entries[slot.place]
        return entry is not None and (not slot.ttl_ms or slot.live(entry) is not None)

    def get(self) -> tuple[Any, ...] | None:
        slot = self._slot
        stored = slot.keyed.entries[slot.place]
        if stored is not None and slot.ttl_ms:
            stored = slot.live(stored)
        return None if stored is None else self._rows.load(stored)

    def update(self, newValue: tuple[Any, ...]) -> None:
        slot = self._slot
        stored = self._rows.store(newValue)
        slot.keyed.entries[slot.place] = slot.stamp(stored) if slot.ttl_ms else stored
        slot.keyed.dirty = True

    def clear(self) -> None:
        self._slot.set(None)

    def prune(self) -> None:
        """Drops a value that has expired."""
        if self._slot.keyed.entries[self._slot.place] is not None and not self.exists():
            self.clear()


class ListVariable(ListState):  # type: ignore[misc]
    """A list per key; full chunks are cells of their own, so that an append touches the tail only."""

    def __init__(self, slot: Slot, schema: T.StructType) -> None:
        self._slot, self._rows = slot, RowConverter(schema)

    def exists(self) -> bool:
        return next(self._items(), None) is not None

    def get(self) -> Iterator[tuple[Any, ...]]:
        for stored in self._items():
            yield self._rows.load(stored)

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        items = self._stored(newState)
        self.clear()
        self.append_stored(items)

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        slot = self._slot
        stored = self._rows.store(newState)
        item = slot.stamp(stored) if slot.ttl_ms else stored
        entry = slot.keyed.entries[slot.place]
        if entry is not None and len(entry[1]) < LIST_CHUNK - 1:
            entry[1].append(item)
            slot.keyed.dirty = True
        else:
            self.append_stored([item])

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        self.append_stored(self._stored(newState))

    def clear(self) -> None:
        entry = self._slot.keyed.entries[self._slot.place]
        for chunk in range(0 if entry is None else entry[0]):
            self._slot.write(chunk, None)
        self._slot.set(None)

    def prune(self) -> None:
        """Drops items that have expired; a list without live items is gone."""
        items = list(self._stamped())
        live = [item for item in items if self._slot.live(item) is not None]
        if len(live) == len(items):
            return
        self.clear()
        if live:
            self.append_stored(live)

    def _stored(self, values: Iterable[tuple[Any, ...]]) -> list[Any]:
        items = [self._slot.stamp(self._rows.store(one)) for one in values]
        if not items:
            raise PySparkRuntimeError(
                "Error updating value state: [ILLEGAL_STATE_STORE_VALUE.EMPTY_LIST_VALUE] "
                "Illegal value provided to the State Store: Cannot write empty list values to State Store."
            )
        return items

    def append_stored(self, items: list[Any]) -> None:
        """Appends items in their stored form."""
        entry = self._slot.keyed.entries[self._slot.place]
        chunks, tail = (0, []) if entry is None else entry
        tail += items
        while len(tail) >= LIST_CHUNK:
            self._slot.write(chunks, tail[:LIST_CHUNK])
            chunks, tail = chunks + 1, tail[LIST_CHUNK:]
        self._slot.set([chunks, tail])

    def _items(self) -> Iterator[Any]:
        for stamped in self._stamped():
            stored = self._slot.live(stamped)
            if stored is not None:
                yield stored

    def _stamped(self) -> Iterator[Any]:
        """All items as stored; later changes of the list do not show."""
        entry = self._slot.keyed.entries[self._slot.place]
        if entry is None:
            return
        chunks, tail = entry[0], list(entry[1])
        if chunks:
            numbers = [cell_number(self._slot.index, chunk) for chunk in range(chunks)]
            for packed in self._slot.cells.read(numbers):
                assert packed is not None, "a chunk that the header names exists"
                yield from unpack(packed)
        yield from tail


class MapVariable(MapState):  # type: ignore[misc]
    """A map per key: one table in the header, or buckets in cells of their own once it is large."""

    def __init__(self, slot: Slot, key_schema: T.StructType, schema: T.StructType) -> None:
        self._slot = slot
        self._keys, self._rows = RowConverter(key_schema), RowConverter(schema)
        self._row = row_maker(tuple(schema.names))

    def exists(self) -> bool:
        return next(self._live(), None) is not None

    def getValue(self, key: tuple[Any, ...]) -> Any:
        stored = self._get(self._keys.packed(key))
        return None if stored is None else self._row(self._rows.load(stored))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return self._get(self._keys.packed(key)) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        packed = self._keys.packed(key)
        stamped = self._slot.stamp(self._rows.store(value))
        entry = self._slot.keyed.entries[self._slot.place]
        if entry is None or type(entry) is dict:
            table = {} if entry is None else entry
            table[packed] = stamped
            self._slot.set(table)
            if len(table) > MAP_BUCKET:
                self._split(table, 4)
            return
        buckets, count = entry
        at = _bucket(packed, buckets)
        table = self._slot.read(at) or {}
        count += packed not in table
        table[packed] = stamped
        self._slot.write(at, table)
        self._slot.set([buckets, count])
        if count > MAP_BUCKET * buckets:
            self._split(dict(self._all()), buckets * 4)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        for packed, stored in self._live():
            yield self._keys.load(unpack(packed)), self._rows.load(stored)

    def keys(self) -> Iterator[tuple[Any, ...]]:
        for packed, _ in self._live():
            yield self._keys.load(unpack(packed))

    def values(self) -> Iterator[tuple[Any, ...]]:
        for _, stored in self._live():
            yield self._rows.load(stored)

    def removeKey(self, key: tuple[Any, ...]) -> None:
        packed, entry = self._keys.packed(key), self._slot.keyed.entries[self._slot.place]
        if entry is None:
            return
        if isinstance(entry, dict):
            entry.pop(packed, None)
            self._slot.set(entry or None)
            return
        buckets, count = entry
        at = _bucket(packed, buckets)
        table = self._slot.read(at) or {}
        if packed in table:
            del table[packed]
            self._slot.write(at, table or None)
            self._slot.set([buckets, count - 1] if count > 1 else None)

    def clear(self) -> None:
        entry = self._slot.keyed.entries[self._slot.place]
        if entry is not None and not isinstance(entry, dict):
            for at in range(entry[0]):
                self._slot.write(at, None)
        self._slot.set(None)

    def prune(self) -> None:
        """Drops entries that have expired."""
        items = dict(self._all())
        live = {packed: item for packed, item in items.items() if self._slot.live(item) is not None}
        if len(live) == len(items):
            return
        self.clear()
        if len(live) > MAP_BUCKET:
            self._split(live, -(-len(live) // MAP_BUCKET))
        elif live:
            self._slot.set(live)

    def _get(self, packed: bytes) -> Any:
        entry = self._slot.keyed.entries[self._slot.place]
        if entry is None:
            return None
        table = entry if isinstance(entry, dict) else self._slot.read(_bucket(packed, entry[0])) or {}
        stamped = table.get(packed)
        return None if stamped is None else self._slot.live(stamped)

    def _live(self) -> Iterator[tuple[bytes, Any]]:
        for packed, stamped in self._all():
            stored = self._slot.live(stamped)
            if stored is not None:
                yield packed, stored

    def _all(self) -> Iterator[tuple[bytes, Any]]:
        """All entries as stored; later changes of the map do not show."""
        entry = self._slot.keyed.entries[self._slot.place]
        if entry is None:
            return
        if isinstance(entry, dict):
            yield from list(entry.items())
            return
        numbers = [cell_number(self._slot.index, at) for at in range(entry[0])]
        for packed in self._slot.cells.read(numbers):
            yield from ({} if packed is None else unpack(packed)).items()

    def _split(self, table: dict[bytes, Any], buckets: int) -> None:
        """Moves all entries into cells, a bucket each."""
        parts: list[dict[bytes, Any]] = [{} for _ in range(buckets)]
        for packed, stamped in table.items():
            parts[_bucket(packed, buckets)][packed] = stamped
        for at, part in enumerate(parts):
            self._slot.write(at, part or None)
        self._slot.set([buckets, len(table)])


def _bucket(packed: bytes, buckets: int) -> int:
    return zlib.crc32(packed) % buckets
