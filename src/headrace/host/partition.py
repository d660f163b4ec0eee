"""One partition of one operator at this host: its committed version, and who may write the next one.

Invariants: at most one transaction is current; a newer attempt takes the partition by making the older one
stale, and gets a store of its own, so the two never share memory. `store` is at `manifest`'s version and
clean whenever no transaction is current; anything else is dropped and read again from storage.
A partition counts in the memory budget from its first `begin` until `rest`.
Threads: `begin` and `publish` from any thread, under the partition's mutex; sealing runs outside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from headrace.checkpoint.operator_record import ensure_operator
from headrace.checkpoint.restore import newest_manifest, restore
from headrace.errors import Fenced
from headrace.format.manifest import Manifest
from headrace.format.names import manifests_of
from headrace.host.contract import Ticket
from headrace.host.home import PartitionHome
from headrace.host.transaction import PartitionTransaction
from headrace.host.upkeep import Compacted, Upkeep
from headrace.store.budget import MemoryBudget
from headrace.store.contract import Store
from headrace.store.open import kinds_of, open_store
from headrace.store.segment import Segment


@dataclass(frozen=True, order=True)
class Claim:
    """Who writes: a later run beats an earlier one, then a later attempt."""

    run: int
    attempt: int


class Partition:
    """Versions of one partition, one writer at a time."""

    def __init__(
        self, home: PartitionHome, budget: MemoryBudget, upkeep: Upkeep, sealers: Executor
    ) -> None:
        self.home = home
        self.sealers = sealers  # write segments while results are read
        self.mutex = threading.Lock()
        self.manifest: Manifest | None = None
        self.commits_since_collection = 0
        self._compacted: Compacted | None = None
        self._upkeep = upkeep
        self._budget = budget
        self._store: Store | None = None
        self._claim = Claim(0, -1)
        self._current: PartitionTransaction | None = None
        self._joined = False
        self._used_s = time.monotonic()

    def begin(self, ticket: Ticket, run: int) -> PartitionTransaction:
        """A transaction for the ticket's attempt; the one before it, if any, becomes stale."""
        claim = Claim(run, ticket.attempt)
        with self.mutex:
            if claim < self._claim:
                raise Fenced(
                    f"attempt {ticket.attempt} of batch {ticket.batch}, partition {ticket.partition} came "
                    f"after attempt {self._claim.attempt}, which owns the partition",
                    hint="nothing to do: the newer attempt goes on",
                )
            if self._current is not None:
                self._current.stale = True
                self._forget()
            self._join()
            store = self._store_at(ticket, run)
            self._claim = claim
            self._current = PartitionTransaction(self, ticket, store, self.manifest, run)
            return self._current

    def end(self, transaction: PartitionTransaction, committed: Manifest | None) -> None:
        """The transaction is over; an uncommitted one takes its store with it. Caller holds the mutex."""
        if self._current is not transaction:
            return
        self._current, self._used_s = None, time.monotonic()
        if committed is None:
            self._forget()
        else:
            self.manifest = committed

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    def rest(self, idle_s: float) -> None:
        """Give memory and share back when nobody came for `idle_s`; the next `begin` reads from storage."""
        if not self.mutex.acquire(blocking=False):
            return  # somebody is at it right now
        try:
            if self._joined and self._current is None and time.monotonic() - self._used_s >= idle_s:
                self._forget()
                self._joined = False
                self._budget.leave()
        finally:
            self.mutex.release()

    def _join(self) -> None:
        self._used_s = time.monotonic()
        if not self._joined:
            self._joined = True
            self._budget.join()

    # ── compaction ───────────────────────────────────────────────────────────────────────────

    def settled_segments(self, segments: Sequence[Segment], ticket: Ticket, run: int) -> list[Segment]:
        """`segments` with a finished compaction taken in. Caller holds the mutex."""
        compacted, self._compacted = self._compacted, None
        replaced = None if compacted is None else compacted.replace_in(segments)
        if compacted is None:
            return list(segments)
        if replaced is None:
            compacted.discard()
            return list(segments)
        if compacted.output is not None:
            self.home.adopt(compacted.output, ticket, run)
        return replaced

    def offer(self, compacted: Compacted) -> None:
        """A compaction has finished; the next commit takes it in."""
        with self.mutex:
            if self._compacted is not None:
                self._compacted.discard()
            self._compacted = compacted

    def upkeep(self, ticket: Ticket) -> None:
        """Look after the partition once a commit is done."""
        self.commits_since_collection += 1
        store = self._store
        if store is not None:
            self._upkeep.consider(self, ticket, store.compaction() if self._compacted is None else None)

    # ── from storage ─────────────────────────────────────────────────────────────────────────

    def _store_at(self, ticket: Ticket, run: int) -> Store:
        """The store at the ticket's base version: the one in memory if it is there, else from storage."""
        held = self._held_at(ticket)
        if held is not None:
            held.seal = self.home.sealer(ticket, run)
            return held
        self._forget()
        self.manifest = restore(self.home.blobs, self.home.prefix, ticket.base)
        ensure_operator(self.home.blobs, ticket.query, ticket.operator, create=ticket.base is None)
        self._store = self._load(ticket, run)
        self._compacted = self._upkeep.relieve(self, self._store)
        return self._store

    def _held_at(self, ticket: Ticket) -> Store | None:
        """The store in memory, when it is the base's truth and reads rows as the ticket's operator does.

        The number alone does not say it: while another host had the partition, a newer run or attempt may
        have written the same version again. A version that is gone is left to `publish` to tell.
        """
        store, manifest = self._store, self.manifest
        if store is None or manifest is None or manifest.version != ticket.base:
            return None
        if store.spec != ticket.operator:
            return None
        prefix = self.home.prefix
        truth = newest_manifest(self.home.blobs.list(manifests_of(prefix, manifest.version)))
        return store if truth in (None, f"{prefix}/{manifest.name}") else None

    def _load(self, ticket: Ticket, run: int) -> Store:
        manifest, kinds = self.manifest, kinds_of(ticket.operator)
        return open_store(
            spec=ticket.operator,
            budget=self._budget,
            seal=self.home.sealer(ticket, run),
            segments=[] if manifest is None else self.home.open_segments(manifest, kinds),
            watermark_us=None if manifest is None else manifest.closed_through_us,
            known_keys=0 if manifest is None else manifest.keys,
        )

    def _forget(self) -> None:
        if self._compacted is not None:
            self._compacted.discard()
        self._store, self.manifest, self._compacted = None, None, None

    def status(self) -> dict[str, object]:
        store, manifest = self._store, self.manifest
        return {
            "version": None if manifest is None else manifest.version,
            "keys": 0 if store is None else store.keys_after(store.watermark_us),
            "memory_bytes": 0 if store is None else store.memory_bytes,
            "segments": 0 if manifest is None else len(manifest.segments),
        }
