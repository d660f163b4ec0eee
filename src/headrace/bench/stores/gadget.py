"""The state accesses of Gadget's operators, as operations of RocksDB.

Like Gadget, this module computes an operator's accesses to its store without keeping any value, so the
replay has nothing to compute. As in Gadget, every event has one operation per window that contains it. Only
consecutive rows of one session within a batch are combined. Keys are big-endian with the window first, so
that a closed window is one range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from headrace.bench.stores.events import BOUND_US, GAP_US, Batch, window_of
from headrace.bench.stores.rocksdb import Operations
from headrace.plan.spec import Window
from headrace.row.arrays import I64
from headrace.store.rows.slices import windows_over

_VALUE = bytes(8)


class Accesses(ABC):
    """One operator; `after` is the watermark after the batch before."""

    after: int = -(1 << 62)
    number: int = 0

    def batch(self, batch: Batch) -> Operations:
        """The operations for these events, and for the new watermark."""
        operations = Operations()
        self.number += 1
        self.take(batch, operations)
        self.after = batch.watermark_us
        self.expire(operations)
        return operations

    @abstractmethod
    def take(self, batch: Batch, operations: Operations) -> None: ...

    @abstractmethod
    def expire(self, operations: Operations) -> None: ...


def accesses_of(name: str) -> Accesses:
    if name == "continuous_aggregation":
        return Continuous()
    if name == "interval_join":
        return Interval()
    if name == "continuous_join":
        return JobsAndTasks()
    window = window_of(name)
    assert window is not None
    appends = not name.endswith("incremental")
    return Sessions(appends) if window.session else Fixed(window, appends)


@dataclass
class Fixed(Accesses):
    """Fixed windows: get and put per key and window, or an append; then a whole window at once."""

    window: Window
    appends: bool
    open: set[int] = field(default_factory=set)

    def take(self, batch: Batch, operations: Operations) -> None:
        slices = batch.times_us - np.mod(batch.times_us, self.window.slice_us)
        rows_of: dict[int, list[I64]] = {}
        for slice_us in np.unique(slices).tolist():
            for start in windows_over(slice_us, self.window):
                if start + self.window.width_us > self.after:
                    rows_of.setdefault(start, []).append(np.flatnonzero(slices == slice_us))
        self.open.update(rows_of)
        for start, rows in rows_of.items():
            self._take(start, batch, np.concatenate(rows), operations)

    def _take(self, start: int, batch: Batch, rows: I64, operations: Operations) -> None:
        keys = packed(start, batch.keys[rows] * 2 + batch.sides[rows])
        if not self.appends:
            operations.gets += keys
            operations.puts += [(key, _VALUE) for key in keys]
            return
        tail = self.number.to_bytes(4, "big")
        operations.puts += [
            (key + tail + place.to_bytes(4, "big"), _VALUE) for place, key in enumerate(keys)
        ]

    def expire(self, operations: Operations) -> None:
        for start in sorted(self.open):
            if start + self.window.width_us <= self.after:
                span = packed(start, np.array([0]))[0], packed(start + 1, np.array([0]))[0]
                operations.scans.append(span)
                operations.drops.append(span)
                self.open.discard(start)


@dataclass
class Continuous(Accesses):
    """Get and put, without an end."""

    def take(self, batch: Batch, operations: Operations) -> None:
        keys = packed(0, batch.keys)
        operations.gets += keys
        operations.puts += [(key, _VALUE) for key in keys]

    def expire(self, operations: Operations) -> None:
        """Nothing expires."""


@dataclass
class Session:
    first: int
    last: int
    name: bytes
    lists: list[bytes] = field(default_factory=list)  # the keys of its values


@dataclass
class Sessions(Accesses):
    """Sessions: a key's meta entry names its windows; windows that meet are merged."""

    appends: bool
    open: dict[int, list[Session]] = field(default_factory=dict)
    due: list[tuple[int, int, bytes]] = field(default_factory=list)
    created: int = 0

    def take(self, batch: Batch, operations: Operations) -> None:
        for key, first, last, values in _stretches(batch, self.after):
            meta = b"m" + key.to_bytes(8, "big")
            operations.gets.append(meta)
            session = self._meet(key, first, last, operations)
            if self.appends:
                session.lists.append(session.name + self.number.to_bytes(8, "big"))
                operations.puts.append((session.lists[-1], values))
            else:
                operations.gets.append(session.name)
                operations.puts.append((session.name, _VALUE))
            operations.puts.append((meta, bytes(24 * len(self.open[key]))))
            heappush(self.due, (session.last + GAP_US, key, session.name))

    def _meet(self, key: int, first: int, last: int, operations: Operations) -> Session:
        sessions = self.open.setdefault(key, [])
        met = [one for one in sessions if one.first <= last + GAP_US and first <= one.last + GAP_US]
        if not met:
            self.created += 1
            sessions.append(Session(first, last, key.to_bytes(8, "big") + self.created.to_bytes(8, "big")))
            return sessions[-1]
        kept = met[0]
        kept.first = min(first, *(one.first for one in met))
        kept.last = max(last, *(one.last for one in met))
        for absorbed in met[1:]:
            sessions.remove(absorbed)
            self._absorb(kept, absorbed, operations)
        return kept

    def _absorb(self, kept: Session, absorbed: Session, operations: Operations) -> None:
        names = absorbed.lists or [absorbed.name]
        operations.gets += names
        operations.deletes += names
        if self.appends:
            moved = kept.name + absorbed.name[8:]
            operations.puts.append((moved, bytes(8 * len(names))))
            kept.lists.append(moved)

    def expire(self, operations: Operations) -> None:
        while self.due and self.due[0][0] <= self.after:
            end, key, name = heappop(self.due)
            sessions = self.open.get(key, [])
            session = next((one for one in sessions if one.name == name and one.last + GAP_US == end), None)
            if session is None:  # the session has grown, or was merged
                continue
            sessions.remove(session)
            names = session.lists or [session.name]
            operations.reads += names
            operations.deletes += names
            if not sessions:
                operations.deletes.append(b"m" + key.to_bytes(8, "big"))
                del self.open[key]


@dataclass
class Interval(Accesses):
    """Get and put at key and time, and a scan of the other side's rows of the key within the bound."""

    due: list[tuple[int, bytes]] = field(default_factory=list)

    def take(self, batch: Batch, operations: Operations) -> None:
        events = zip(batch.keys.tolist(), batch.times_us.tolist(), batch.sides.tolist(), strict=True)
        for place, (key, time_us, side) in enumerate(events):
            own, other = (bytes([of]) + key.to_bytes(8, "big") for of in (side, 1 - side))
            at = own + _moment(time_us) + self.number.to_bytes(4, "big") + place.to_bytes(4, "big")
            operations.gets.append(at)
            operations.puts.append((at, _VALUE))
            operations.scans.append(
                (other + _moment(time_us - BOUND_US), other + _moment(time_us + BOUND_US))
            )
            heappush(self.due, (time_us + BOUND_US, at))

    def expire(self, operations: Operations) -> None:
        while self.due and self.due[0][0] <= self.after:
            operations.deletes.append(heappop(self.due)[1])


def _moment(time_us: int) -> bytes:
    return (time_us + (1 << 40)).to_bytes(8, "big")


@dataclass
class JobsAndTasks(Accesses):
    """Gadget's continuous join; a job ends when none of its events arrived for a session's gap."""

    jobs: set[int] = field(default_factory=set)
    waiting: dict[int, list[bytes]] = field(default_factory=dict)  # tasks that precede their job
    last: dict[int, int] = field(default_factory=dict)
    due: list[tuple[int, int]] = field(default_factory=list)

    def take(self, batch: Batch, operations: Operations) -> None:
        events = zip(batch.keys.tolist(), batch.times_us.tolist(), batch.sides.tolist(), strict=True)
        for place, (key, time_us, side) in enumerate(events):
            if time_us + GAP_US <= self.after:
                continue
            job = b"j" + key.to_bytes(8, "big")
            operations.gets.append(job)
            self._event(key, side, job, place, operations)
            if time_us > self.last.get(key, -1):
                self.last[key] = time_us
                heappush(self.due, (time_us + GAP_US, key))

    def _event(self, key: int, side: int, job: bytes, place: int, operations: Operations) -> None:
        if side == 0:
            operations.deletes += self.waiting.pop(key, [])
            operations.puts.append((job, _VALUE))
            self.jobs.add(key)
        elif key not in self.jobs:
            task = b"t" + job[1:] + self.number.to_bytes(4, "big") + place.to_bytes(4, "big")
            self.waiting.setdefault(key, []).append(task)
            operations.puts.append((task, _VALUE))

    def expire(self, operations: Operations) -> None:
        while self.due and self.due[0][0] <= self.after:
            end, key = heappop(self.due)
            if self.last.get(key) != end - GAP_US:
                continue
            del self.last[key]
            self.jobs.discard(key)
            operations.deletes += [b"j" + key.to_bytes(8, "big"), *self.waiting.pop(key, [])]


def packed(start: int, keys: npt.NDArray[np.int64]) -> list[bytes]:
    """The window, then the key, for each key."""
    pairs = np.empty((len(keys), 2), ">i8")
    pairs[:, 0], pairs[:, 1] = start + (1 << 40), keys  # windows may begin before time 0
    together = pairs.tobytes()
    return [together[at : at + 16] for at in range(0, len(together), 16)]


def _stretches(batch: Batch, after: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Key, first and last time and values of a key's rows without a gap between them."""
    timely = batch.times_us + GAP_US > after
    keys, times, values = batch.keys[timely], batch.times_us[timely], batch.values[timely]
    order = np.lexsort((times, keys))
    keys, times, values = keys[order], times[order], values[order]
    apart = np.flatnonzero((np.diff(keys) != 0) | (np.diff(times) > GAP_US)) + 1
    starts = np.concatenate([[0], apart]) if len(keys) else apart
    ends = np.concatenate([apart, [len(keys)]]) if len(keys) else apart
    for low, high in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(keys[low]), int(times[low]), int(times[high - 1]), values[low:high].tobytes()
