"""Reads the state of hinted hashes before their rows arrive.

    hint ─▶ waiting ─▶ on its way ─▶ staged ─▶ answered            (a hash is in one of these, or in none)

Invariants: a staged row is the newest flushed row of its hash. The store flushes a row, then makes its
segment readable, then calls `forget`; a fetch is entered before it looks for segments. So `forget` meets
every fetch that may have read older rows. Waiting hints and staged rows take `STAGED_MAX` of the share.
A fetch that fails, or is dropped for room, is a lost hint: the row reads on demand.
Threads: `hint` from any; `answer`, `forget` and `settled` from the partition's own; one lock guards all.
Reads run in the host's pool, outside the lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

import numpy as np

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.kernels.sessions.rows import among
from headrace.row.arrays import U64, Flags
from headrace.store.ahead.hints import HINT_BYTES, Hints, WaitingHints
from headrace.store.ahead.staged import Fetch, Layout
from headrace.store.base.ahead_counts import AheadCounts
from headrace.store.base.room import STAGED_MAX
from headrace.store.base.share import Share
from headrace.store.segments.reader import Answer, Segment

log = logging.getLogger("headrace.store.ahead")

FETCH_HASHES = 4096  # of one fetch: neighbours share reads
FETCHES = 4  # of one partition at a time
WAITING_MAX = 1 << 17  # hints of one partition
_HINTS_PART = 8
_LARGER = 2
MakeFetch = Callable[[int, Hints, float], Fetch]
COMMITS_MAX = 2  # a staged row that was not used in so many batches was read in vain


class PrefetchManager:
    """The prefetching manager of one store."""

    def __init__(
        self,
        layout: Layout,
        stored: Callable[[], Sequence[Segment]],
        threads: Executor,
        share: Share,
        counts: AheadCounts,
        clock: Clock = SYSTEM_CLOCK,
        fetch: MakeFetch = Fetch,
    ) -> None:
        self._layout, self._stored, self._threads, self._share = layout, stored, threads, share
        self._now_ms, self._clock, self._make_fetch = clock.monotonic_ms, clock, fetch
        self.counts = counts
        self._waiting = WaitingHints(WAITING_MAX)
        self._fetches: list[tuple[Fetch, Future[None] | None]] = []
        self._lock = threading.RLock()  # an executor may run a fetch at once
        self._closed = False
        self._seen_bytes = 0  # of a hash, in the last fetch: rows may have a heap, and a hash many rows

    # ── hints ────────────────────────────────────────────────────────────────────────────────

    def hint(self, slice_us: int, hashes: U64, time: int) -> None:
        """The state of ordered, distinct hashes will be needed at an event time."""
        arrivals = np.full(len(hashes), int(self._now_ms()), np.int64)
        with self._lock:
            known = self._known(slice_us, hashes)
            more = Hints(hashes, np.full(len(hashes), time, np.int64), arrivals).where(~known)
            self.counts.hints += len(hashes)
            self.counts.filtered += int(known.sum())
            if self._closed:
                return
            self._waiting.limit = min(WAITING_MAX, STAGED_MAX.of(self._share) // _HINTS_PART // HINT_BYTES)
            self.counts.dropped += self._waiting.add(slice_us, more)
            self._start()

    def _known(self, slice_us: int, hashes: U64) -> Flags:
        """The hashes that are staged or on their way."""
        known: Flags = np.zeros(len(hashes), np.bool_)
        for fetch, _ in self._fetches:
            if fetch.slice_us == slice_us:
                known |= among(hashes, fetch.hashes[fetch.alive])
                if fetch.used.any():
                    fetch.used &= ~among(fetch.hashes, hashes)  # they are expected once more
        return known

    def _start(self) -> None:
        """Starts fetches while threads and memory allow."""
        many = self._hashes_of_fetch
        while self._under_way < FETCHES and self._staged_bytes + many * self._row_bytes <= self._room:
            chosen = self._waiting.take(many)
            if chosen is None:
                return
            fetch = self._make_fetch(*chosen, self._now_ms())
            self._fetches.append((fetch, None))
            future = self._threads.submit(self._read, fetch)  # may have ended, and begun others
            self._fetches = [(one, future if one is fetch else known) for one, known in self._fetches]

    @property
    def _hashes_of_fetch(self) -> int:
        """So many that all fetches at a time fit into the room."""
        return max(1, min(FETCH_HASHES, self._room // (FETCHES * self._row_bytes)))

    @property
    def _room(self) -> int:
        """Bytes for staged rows; a part of their room is for hints that wait."""
        whole = STAGED_MAX.of(self._share)
        return whole - whole // _HINTS_PART

    @property
    def _row_bytes(self) -> int:
        return max(row_bytes(self._layout), self._seen_bytes)

    @property
    def _under_way(self) -> int:
        return sum(not fetch.done.is_set() for fetch, _ in self._fetches)

    def _read(self, fetch: Fetch) -> None:
        """Runs in a thread of the pool."""
        try:
            fetch.read(self._stored())
            fetch.ok = True
        except Exception as error:  # the row reads on demand, and raises what there is to raise
            log.info("a read ahead failed: %s", error)
        finally:
            fetch.ended_ms = self._now_ms()
            fetch.done.set()
            with self._lock:
                self._ended(fetch)

    def _ended(self, fetch: Fetch) -> None:
        hashes = len(fetch.hashes)
        if fetch.ok:
            self.counts.fetched += hashes
            self.counts.reads.add(hashes, fetch.ended_ms - fetch.begun_ms)
            self.counts.hidden_ms += fetch.ended_ms - fetch.begun_ms
            self.counts.stretch.add(self._clock.now_ms(), fetch.ended_ms - fetch.begun_ms)
            is_larger = fetch.nbytes > _LARGER * hashes * self._row_bytes
            self._seen_bytes = fetch.nbytes // hashes
            if is_larger and self._staged_bytes > STAGED_MAX.of(self._share):
                self.counts.dropped += int(fetch.alive.sum())
                self._drop([fetch])
        else:
            self.counts.failed += hashes
            self._drop([fetch])
        if not self._closed:
            self._start()

    # ── the partition's own thread ───────────────────────────────────────────────────────────

    def answer(self, slice_us: int, answer: Answer) -> Flags:
        """Adds staged rows of keys; returns the probes that have their answer, present or absent.

        A fetch on its way is awaited if it has begun; one that has not is given up.
        """
        known: Flags = np.zeros(len(answer.probe), np.bool_)
        came_ms = self._now_ms()
        for fetch in self._covering(slice_us, answer.probe.order):
            begun_ms = self._now_ms()
            fetch.done.wait()
            with self._lock:
                self.counts.hidden_ms -= self._now_ms() - begun_ms
                if fetch.ok and not self._closed:
                    mine, consulted = fetch.answer(self._layout, answer)
                    known |= mine
                    self._used(fetch, consulted, came_ms)
        with self._lock:
            self._drop_empty()
            if not self._closed:
                self._start()
        return known

    def staged(self, slice_us: int, hashes: U64) -> list[Fetch]:
        """The fetches with rows of ordered hashes, which are used now and stay until the commit."""
        fetches, came_ms = [], self._now_ms()
        for fetch in self._covering(slice_us, hashes):
            begun_ms = self._now_ms()
            fetch.done.wait()
            with self._lock:
                self.counts.hidden_ms -= self._now_ms() - begun_ms
                if fetch.ok and not self._closed:
                    consulted = fetch.alive & ~fetch.used & among(fetch.hashes, hashes)
                    self._used(fetch, consulted, came_ms)
                    fetch.used |= consulted
                    fetches.append(fetch)
        return fetches

    def _covering(self, slice_us: int, hashes: U64) -> list[Fetch]:
        """The fetches that have any of the hashes; those that have not begun are cancelled instead."""
        with self._lock:
            mine = [
                (fetch, future)
                for fetch, future in self._fetches
                if fetch.slice_us == slice_us and fetch.covers(hashes)
            ]
            given_up = [fetch for fetch, future in mine if future is not None and future.cancel()]
            self.counts.dropped += sum(int(fetch.alive.sum()) for fetch in given_up)
            self._drop(given_up)
            self._waiting.remove(slice_us, hashes)
        return [fetch for fetch, _ in mine if fetch not in given_up]

    def _used(self, fetch: Fetch, consulted: Flags, came_ms: float) -> None:
        """The slack ends when the row comes: its wait for the read is no part of it."""
        self.counts.used += int(consulted.sum())
        arrivals, rows = np.unique(fetch.hints.arrivals_ms[consulted], return_counts=True)
        for arrival, many in zip(arrivals.tolist(), rows.tolist(), strict=True):
            self.counts.slacks.add(many, max(0.0, came_ms - arrival))

    def forget(self, slice_us: int, hashes: U64) -> None:
        """Newer rows of these ordered hashes were flushed, and their segment can be read."""
        with self._lock:
            for fetch, _ in self._fetches:
                if fetch.slice_us == slice_us:
                    self.counts.dropped += fetch.forget(hashes)
            self._waiting.remove(slice_us, hashes)
            self._drop_empty()

    def settled(self, is_open: Callable[[int], bool]) -> None:
        """A batch was committed: closed slices go, and rows that no batch used."""
        with self._lock:
            for fetch, _ in self._fetches:
                fetch.settled += 1
                fetch.alive &= ~fetch.used
            old = [f for f, _ in self._fetches if f.settled >= COMMITS_MAX or not is_open(f.slice_us)]
            self.counts.in_vain += sum(int(fetch.alive.sum()) for fetch in old if fetch.ok)
            self._drop(old)
            for slice_us in [one for one in self._waiting.of_slice if not is_open(one)]:
                self.counts.late += len(self._waiting.of_slice.pop(slice_us))

    def late(self, hashes: int) -> None:
        """Hints for closed windows came in."""
        with self._lock:
            self.counts.hints += hashes
            self.counts.late += hashes

    def resident(self, hashes: int) -> None:
        """Hints for rows in memory came in."""
        with self._lock:
            self.counts.hints += hashes
            self.counts.filtered += hashes

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    @property
    def nbytes(self) -> int:
        """Memory of waiting hints and staged rows; of fetches on their way as far as known."""
        return self._staged_bytes + HINT_BYTES * len(self._waiting)

    @property
    def _staged_bytes(self) -> int:
        return sum(
            fetch.nbytes if fetch.done.is_set() else len(fetch.hashes) * self._row_bytes
            for fetch, _ in list(self._fetches)
        )

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to forget."""
        return not self._fetches and not len(self._waiting)

    def drop(self) -> None:
        """Frees all of its memory; hints to come are chosen again."""
        with self._lock:
            self._clear()

    def close(self) -> None:
        """Ends it: nothing is fetched or answered any more."""
        with self._lock:
            self._closed = True
            self._clear()

    def _clear(self) -> None:
        fetches = [fetch for fetch, _ in self._fetches]
        self.counts.dropped += self._waiting.clear() + sum(int(fetch.alive.sum()) for fetch in fetches)
        self._drop(fetches)

    def _drop(self, fetches: list[Fetch]) -> None:
        for fetch in fetches:
            fetch.alive[:] = False
        self._drop_empty()

    def _drop_empty(self) -> None:
        """Fetches on their way stay until they end: they count among those under way."""
        self._fetches = [
            (fetch, future)
            for fetch, future in self._fetches
            if fetch.alive.any() or not (fetch.done.is_set() or _is_cancelled(future))
        ]


def row_bytes(layout: Layout) -> int:
    """Memory of a staged row without its heap."""
    return 8 * (layout.width + 1) + HINT_BYTES


def _is_cancelled(future: Future[None] | None) -> bool:
    return future is not None and future.cancelled()
