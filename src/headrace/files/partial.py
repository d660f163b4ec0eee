"""A file of shared storage that is present in part: a private sparse file, filled by ranged reads.

Every byte is at its own offset, so kernels read it as any other file. The sparse file has no name, so no
other process sees it and nothing is left after a crash.

Invariants: a unit that is neither ABSENT nor COMING has its bytes. One thread fetches a unit; others wait.
Bytes that a read under way may use are not evicted: `shrink` skips a file that another thread reads.
Threads: any; one condition guards the units, and no request runs under it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from headrace.errors import StateCorrupt, TryAgain
from headrace.files.fetched import Fetched
from headrace.files.local import writing
from headrace.files.opened import OpenFile, T
from headrace.files.ranges import UNIT_BYTES, all_units, calls, pieces, requests, runs, units_of
from headrace.row.arrays import I64, U8

if TYPE_CHECKING:
    from headrace.files.space import PartialSpace

ABSENT, COLD, HOT, COMING = 0, 1, 2, 3  # HOT: used since the last eviction; COLD goes first
_PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_TRIES = 3  # of a request whose reply is too short
_libc = ctypes.CDLL(None, use_errno=True)

ReadRange = Callable[[int, int], bytes]  # start and length; fewer bytes where the file or the reply ends
ReadRanges = Callable[[Sequence[tuple[int, int]]], list[bytes]]  # the same for several ranges
Part = tuple[int, int, memoryview]  # units `[first, end)` and their bytes


@dataclass(frozen=True)
class _Range:
    """Units `[first, end)` to fetch with one request, and the runs of them to keep."""

    first: int
    end: int
    kept: list[tuple[int, int]]

    @property
    def nbytes(self) -> int:
        return (self.end - self.first) * UNIT_BYTES


ReadSize = Callable[[], int]


class PartialFile(OpenFile):
    """An open file whose bytes are fetched when they are first needed."""

    is_partial = True
    is_whole_elsewhere = False  # a whole copy is on the disk now
    load: Callable[[], None] | None = None  # makes a whole copy, in any thread

    def __init__(
        self,
        space: PartialSpace,
        where: str,
        size: int,
        read: ReadRange,
        read_size: ReadSize,
        name: str = "",
        fetched: Fetched | None = None,
        at_once: int = 1,
        read_ranges: ReadRanges | None = None,
    ) -> None:
        super().__init__(space.new_file(size), where)
        self.fetched = fetched or Fetched()  # of all files of its partition
        self.name = name  # by which the cache remembers its uses
        self._size, self._read, self._read_size, self._space = size, read, read_size, space
        self._at_once, self._read_ranges = at_once, read_ranges or self._one_by_one
        self._units: U8 = np.zeros(-(-size // UNIT_BYTES), np.uint8)
        self._changed = threading.Condition()
        self._pins: dict[int, int] = {}  # reads under way, by thread
        self._hand = 0  # where the next eviction begins
        self.present_bytes = 0
        self.used_ms = 0.0
        space.add(self)

    @property
    def size(self) -> int:
        return self._size

    @property
    def is_evicted(self) -> bool:
        """Whether the bytes have a better place: a whole copy."""
        return self.is_whole_elsewhere

    @property
    def memory_bytes(self) -> int:
        return self._units.nbytes + (self.present_bytes if self._space.in_memory else 0)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def ensure(self, starts: I64, ends: I64, *, once: bool = False) -> None:
        units = units_of(starts, ends)
        is_worth_loading = not once and self._space.is_worth_loading(self.name, self._size)
        present = int((self._units[units] % COMING > ABSENT).sum())
        self._space.count(self, Fetched(cached_bytes=present * UNIT_BYTES))
        while True:
            with self._changed:
                states = self._units[units]
                missing = units[states == ABSENT]
                if not once:
                    self._units[units[states == COLD]] = HOT
                if len(missing):
                    self._units[missing] = COMING
                elif (states == COMING).any():
                    self._space.wait(self, self._changed)
                    continue
                else:
                    return
            if is_worth_loading and self.load is not None:
                self.beside(self._promote)
            self._fetch(missing, COLD if once else HOT)
            self._space.relieve(self, units)

    def _promote(self) -> None:
        load, self.load = self.load, None
        if load is not None:
            self._space.probe("promoting")
            load()
            self._space.probe("promoted")
            self.is_whole_elsewhere = True

    def announce(self, starts: I64, ends: I64) -> None:
        def fetch() -> None:
            with self.use():
                self.ensure(starts, ends, once=True)

        self.beside(fetch)

    def beside(self, work: Callable[[], T]) -> Future[T]:
        return self._space.fetcher.beside(work)

    def _fetch(self, missing: I64, state: int) -> None:
        """Fetches units that this thread has marked as coming."""
        firsts, ends = requests(missing, self._space.fetcher.gap_bytes)
        claimed = self._claim(missing, firsts, ends)
        ranges = [
            _Range(first, end, kept)
            for first, end, kept in zip(
                firsts.tolist(), ends.tolist(), pieces(claimed, firsts, ends), strict=True
            )
        ]
        begun_ms = self._space.clock.monotonic_ms()
        try:
            groups = calls(ranges, self._at_once)
            self._space.fetcher.run([self._call(group, state) for group in groups], once=state == COLD)
        finally:
            with self._changed:  # what an error left
                self._units[claimed[self._units[claimed] == COMING]] = ABSENT
                self._changed.notify_all()
            self._space.count_fetch(self, self._space.clock.monotonic_ms() - begun_ms)

    def _claim(self, missing: I64, firsts: I64, ends: I64) -> I64:
        """The units of replies that this thread will keep; without room, only those that it waits for."""
        units = int((ends - firsts).sum())
        if units == len(missing) or not self._space.has_room(units * UNIT_BYTES):
            return missing
        between = np.setdiff1d(all_units(firsts, ends), missing, assume_unique=True)
        with self._changed:
            fresh = between[self._units[between] == ABSENT]
            self._units[fresh] = COMING
        return np.sort(np.concatenate([missing, fresh]))

    def _call(self, ranges: Sequence[_Range], state: int) -> tuple[int, Callable[[], None]]:
        """The bytes of one call for several ranges, and the call."""
        return sum(each.nbytes for each in ranges), lambda: self._fetch_ranges(ranges, state)

    def _fetch_ranges(self, ranges: Sequence[_Range], state: int) -> None:
        places = [self._bytes_of(each.first, each.end) for each in ranges]
        parts = list[Part]()
        for each, place, reply in zip(ranges, places, self._read_ranges(places), strict=True):
            data = memoryview(reply if len(reply) == place[1] else self._whole(*place, reply))
            for a, b in each.kept:
                parts.append((a, b, data[(a - each.first) * UNIT_BYTES : (b - each.first) * UNIT_BYTES]))
        self._write(parts, state)
        fetched = sum(length for _, length in places)
        self._space.count(self, Fetched(fetched_bytes=fetched, requests=len(ranges)))

    def _bytes_of(self, first: int, end: int) -> tuple[int, int]:
        """Start and length of units."""
        return first * UNIT_BYTES, min(end * UNIT_BYTES, self._size) - first * UNIT_BYTES

    def _one_by_one(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self._read(start, length) for start, length in ranges]

    def _whole(self, start: int, length: int, data: bytes) -> bytes:
        """The bytes of a range after a short reply: it is repeated, a file that is too short is corrupt."""
        for number in range(_TRIES):
            data = data if number == 0 else self._read(start, length)
            if len(data) == length:
                return data
            stored = self._read_size()
            if stored != self._size:
                raise StateCorrupt(
                    f"segment {self.where} has {stored} bytes, and {self._size} in its manifest",
                    hint="it was cut short or replaced: bring it back from a backup, "
                    "or start again with a new checkpoint location",
                )
        raise TryAgain(
            f"{self.where} was cut short {_TRIES} times at byte {start + len(data)}",
            hint="nothing to do if it passes: the batch is tried again",
        )

    def _write(self, parts: Sequence[Part], state: int) -> None:
        """Writes units that this thread has marked as coming: no other thread writes or evicts them."""
        units = 0
        with writing(self._space.folder):
            for first, end, data in parts:
                at, left, units = first * UNIT_BYTES, data, units + end - first
                while left:
                    done = os.pwrite(self.fd, left, at)
                    left, at = left[done:], at + done
        with self._changed:
            for first, end, _ in parts:
                self._units[first:end] = state
            self._grow(units * UNIT_BYTES)
            self._changed.notify_all()

    def _grow(self, nbytes: int) -> None:
        self.present_bytes += nbytes
        self._space.grew(nbytes)

    # ── eviction ─────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def reading(self) -> Iterator[Self]:
        """A read under way: no other thread evicts bytes of this file meanwhile."""
        me = threading.get_ident()
        with self.use():
            self._pin(me, 1)
            try:
                yield self
            finally:
                self._pin(me, -1)

    def _pin(self, thread: int, by: int) -> None:
        with self._changed:
            self._pins[thread] = self._pins.get(thread, 0) + by
            if not self._pins[thread]:
                del self._pins[thread]
            self.used_ms = self._space.clock.monotonic_ms()

    def shrink(self, nbytes: int, keep: I64 | None) -> int:
        """Evicts about `nbytes` of COLD units, in turn; returns how much. Units in `keep` stay.

        Another thread's read under way keeps the whole file.
        """
        with self._changed:
            if self._pins.keys() - {threading.get_ident()}:
                return 0
            cold: I64 = np.flatnonzero(self._units == COLD)
            if keep is not None:
                cold = np.setdiff1d(cold, keep, assume_unique=True)
            turn = int(np.searchsorted(cold, self._hand))
            chosen = np.sort(np.roll(cold, -turn)[: -(-nbytes // UNIT_BYTES)])
            for first, end in runs(chosen):
                self._punch(first, end)
            self._units[chosen] = ABSENT
            self._hand = int(chosen[-1]) + 1 if len(chosen) else 0
            evicted = len(chosen) * UNIT_BYTES
            self._grow(-evicted)
            self._space.count(self, Fetched(evicted_bytes=evicted))
            return evicted

    def cool(self) -> None:
        """Makes every HOT unit COLD: it stays if it is used before the next eviction."""
        with self._changed:
            self._units[self._units == HOT] = COLD

    def _punch(self, first: int, end: int) -> None:
        start, length = first * UNIT_BYTES, (end - first) * UNIT_BYTES
        code = _libc.fallocate(self.fd, _PUNCH, ctypes.c_int64(start), ctypes.c_int64(length))
        if code != 0:  # a file system without holes: the bytes stay until the file closes
            self._space.cannot_punch(os.strerror(ctypes.get_errno()))

    def _free(self) -> None:
        with self._changed:  # an eviction under way must not meet the descriptor of another file
            self._units[:] = ABSENT
            super()._free()
        self._space.grew(-self.present_bytes)
        self.present_bytes = 0
