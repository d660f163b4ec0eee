"""One partition of one operator at this host: its committed version, and who may write the next one.

Invariants: at most one transaction is current; a newer attempt takes the partition by making the older one
stale, and gets a store of its own, so the two never share memory. `store` is at `manifest`'s version and
clean whenever no transaction is current and no epoch waits for its seal; anything else is dropped and read
again. A version is read from where it is: the pipeline's local files, shared storage, or the local log of a
host that died; of several the newest run's newest attempt counts.
A partition counts in the memory budget from its first `begin` until `rest`.
Threads: `begin` and the commits from any thread, under the partition's mutex; sealing runs outside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.operator_record import ensure_operator
from headrace.checkpoint.pipeline import CommitPipeline, Crew, Epoch
from headrace.checkpoint.restore import newest_manifest, restore
from headrace.checkpoint.steps import Moment
from headrace.errors import Fenced, TryAgain
from headrace.format.manifest import Manifest
from headrace.format.names import Attempt, manifests_of, parse_manifest
from headrace.host.behind import Asked, vouched_for
from headrace.host.commit import EpochCommit
from headrace.host.contract import Ticket
from headrace.host.home import PartitionHome, Sealer
from headrace.host.local import LocalSealer
from headrace.host.transaction import PartitionTransaction
from headrace.host.upkeep import Compacted, Upkeep
from headrace.store.budget import MemoryBudget, PartitionBudget
from headrace.store.contract import Store
from headrace.store.migrate import Move, MovingStore, stored_as
from headrace.store.open import kinds_of, open_store
from headrace.store.rewrite import discard
from headrace.store.segment import Segment


@dataclass(frozen=True, order=True)
class Claim:
    """Who writes: a later run beats an earlier one, then a later attempt."""

    run: int
    attempt: int


class Partition:
    """Versions of one partition, one writer at a time."""

    def __init__(
        self,
        home: PartitionHome,
        budget: MemoryBudget,
        upkeep: Upkeep,
        crew: Crew,
        pipeline: CommitPipeline,
    ) -> None:
        self.home = home
        self.crew = crew
        self.pipeline = pipeline
        self.mutex = threading.Lock()
        self.manifest: Manifest | None = None
        self.commits_since_collection = 0
        self.asked: Asked | None = None  # about a base, by a batch that did not wait for the answer
        self._compacted: Compacted | None = None
        self._upkeep = upkeep
        self._budget = budget
        self._store: Store | None = None
        self._claim = Claim(0, -1)
        self._current: PartitionTransaction | None = None
        self._share: PartitionBudget | None = None
        self._used_s = time.monotonic()

    @property
    def log(self) -> LocalLog:
        assert self.home.log is not None, "the host has a local directory"
        return self.home.log

    def begin(self, ticket: Ticket, run: int) -> PartitionTransaction:
        """A transaction for the ticket's attempt; the one before it, if any, becomes stale."""
        claim = Claim(run, ticket.attempt)
        self._hear()
        while True:
            self.pipeline.await_sealed(ticket.base)
            with self.mutex:
                if claim < self._claim:
                    raise Fenced(
                        f"attempt {ticket.attempt} of batch {ticket.batch}, partition {ticket.partition} "
                        f"came after attempt {self._claim.attempt}, which owns the partition",
                        hint="nothing to do: the newer attempt goes on",
                    )
                if not self._is_unsealed(ticket.base):
                    return self._begin(ticket, run, claim)

    def _hear(self) -> None:
        """Look at what storage said while the last batch ran; by now it has."""
        asked, self.asked = self.asked, None
        if asked is None:
            return
        try:
            asked.check(self.crew.wait)
        except TryAgain:
            with self.mutex:
                self._forget()
            raise

    def _begin(self, ticket: Ticket, run: int, claim: Claim) -> PartitionTransaction:
        if self._current is not None:
            self._current.stale = True
            self._forget()
        epoch = self.pipeline.epoch
        if epoch is not None and epoch.work.version != ticket.base:
            self.pipeline.drop()  # its batch runs again; until that is logged too, its entry stays
            self._forget()
        if ticket.commit != "sync":
            self.log.open()
        self._used_s = time.monotonic()
        sealer = self._sealer(ticket, run)
        store, truth = self._store_and_truth(ticket, sealer)
        if isinstance(store, MovingStore) and store.is_ready:
            store.switch(self.home.stage)
        self._claim = claim
        self._current = PartitionTransaction(self, ticket, store, sealer, self.manifest, truth)
        return self._current

    def _store_and_truth(
        self, ticket: Ticket, sealer: Sealer | LocalSealer
    ) -> tuple[Store, Future[Attempt | None] | None]:
        """The store at the base; behind the batches, storage is asked beside them whether it counts."""
        held = self._held_at(ticket, None) if ticket.commit != "sync" else None
        if held is None:
            return self._store_at(ticket, sealer), None
        held.seal = sealer
        assert self.manifest is not None
        # A batch that waits for the answer gets it from a sealer; else no sealer is kept from its work.
        vouched = vouched_for(self.manifest, ticket, sealer.run)
        ask = self.crew.uploads if vouched else self.crew.sealers
        return held, ask.submit(self._shared, ticket.base)

    def _is_unsealed(self, version: int | None) -> bool:
        """Whether the version was logged here a moment ago, and its store is not clean yet."""
        epoch = self.pipeline.epoch
        return epoch is not None and epoch.work.version == version and not epoch.sealed.done()

    def logged(self, transaction: PartitionTransaction, work: EpochCommit) -> Epoch:
        """The transaction has its first acknowledgement. Caller holds the mutex.

        Until its seal settles it, the store is at no version: a seal that fails leaves it so.
        """
        self._current, self._used_s, self.manifest = None, time.monotonic(), None
        return self.pipeline.start(work)

    def sealed(self, manifest: Manifest, ticket: Ticket) -> None:
        """The store has settled at a version that is logged. Caller holds the mutex."""
        self.manifest = manifest
        self.upkeep(ticket)

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
            idle = self._current is None and self._is_settled()
            if self._share is not None and idle and time.monotonic() - self._used_s >= idle_s:
                self._forget()
                self._share.close()
                self._share = None
        finally:
            self.mutex.release()

    def _is_settled(self) -> bool:
        epoch = self.pipeline.epoch
        return epoch is None or epoch.sealed.done()

    @property
    def share(self) -> PartitionBudget:
        """What its store may take of the host's memory."""
        if self._share is None:
            self._share = self._budget.join()
        return self._share

    # ── compaction ───────────────────────────────────────────────────────────────────────────

    def settled_segments(self, segments: Sequence[Segment], ticket: Ticket, run: int) -> list[Segment]:
        """`segments` with a finished compaction or move taken in. Caller holds the mutex."""
        if isinstance(self._store, MovingStore):
            for segment in self._store.named():
                self._adopt(segment, ticket, run)
        compacted, self._compacted = self._compacted, None
        is_moving = isinstance(self._store, MovingStore) and self._store.is_moving
        replaced = None if compacted is None or is_moving else compacted.replace_in(segments)
        if compacted is None:
            return list(segments)
        if replaced is None:
            compacted.discard()
            return list(segments)
        if compacted.output is not None:
            self._adopt(compacted.output, ticket, run)
        return replaced

    def _adopt(self, segment: Segment, ticket: Ticket, run: int) -> None:
        if ticket.commit == "sync":
            self.home.adopt(segment, ticket, run)
        else:
            LocalSealer(self.home, self.log, ticket, run).adopt(segment)

    def offer(self, compacted: Compacted) -> None:
        """A compaction has finished; the next commit takes it in."""
        with self.mutex:
            if self._compacted is not None:
                self._compacted.discard()
            self._compacted = compacted

    def take_move(self, store: MovingStore, move: Move, written: list[Segment]) -> None:
        """Files of a store's new layout are written; a store that was dropped meanwhile wants none."""
        with self.mutex:
            if self._store is store:
                store.take(move, written)
            else:
                discard(written)

    def upkeep(self, ticket: Ticket) -> None:
        """Look after the partition once a commit is done."""
        self.commits_since_collection += 1
        store = self._store
        if store is not None:
            move = store.move() if isinstance(store, MovingStore) and self._compacted is None else None
            moving = (store, move) if isinstance(store, MovingStore) and move is not None else None
            compaction = store.compaction() if self._compacted is None else None
            self._upkeep.consider(self, ticket, compaction, moving)

    # ── from storage ─────────────────────────────────────────────────────────────────────────

    def _store_at(self, ticket: Ticket, sealer: Sealer | LocalSealer) -> Store:
        """The store at the ticket's base version: the one in memory if it is there, else from storage."""
        truth = self._shared(ticket.base)
        held = self._held_at(ticket, truth)
        if held is not None:
            held.seal = sealer
            return held
        self._forget()
        self.manifest = self._manifest_at(ticket.base, truth)
        ensure_operator(
            self.home.blobs,
            ticket.query,
            ticket.operator,
            create=ticket.base is None,
            clock=self.crew.clock,
        )
        self._store = self._load(ticket, sealer)
        self._compacted = self._upkeep.relieve(self, self._store)
        return self._store

    def _sealer(self, ticket: Ticket, run: int) -> Sealer | LocalSealer:
        if ticket.commit == "sync":
            return Sealer(self.home, ticket, run)
        return LocalSealer(self.home, self.log, ticket, run)

    def _shared(self, base: int | None) -> Attempt | None:
        """Who wrote the version on shared storage; None when it is not there."""
        if base is None:
            return None
        newest = newest_manifest(self.home.blobs.list(manifests_of(self.home.prefix, base)))
        return None if newest is None else parse_manifest(newest)

    def _held_at(self, ticket: Ticket, shared: Attempt | None) -> Store | None:
        """The store in memory, when it is the base's truth and reads rows as the ticket's operator does.

        The number alone does not say it: while another host had the partition, a newer run or attempt may
        have written the same version again. A version that is gone is left to `publish` to tell.
        """
        store, manifest = self._store, self.manifest
        if store is None or manifest is None or manifest.version != ticket.base:
            return None
        if store.spec != ticket.operator:
            return None
        return store if shared is None or shared <= manifest.written_by else None

    def _manifest_at(self, base: int | None, shared: Attempt | None) -> Manifest | None:
        """The version's manifest: of the epoch under way, of a log left behind, or as published."""
        epoch = self.pipeline.epoch
        if epoch is not None:
            assert isinstance(epoch.work, EpochCommit)
            if shared is None or shared <= epoch.work.attempt:
                return epoch.work.manifest
            self.pipeline.drop()
        logged = [] if base is None else [entry for entry in self.log.entries() if entry.version == base]
        if logged and (shared is None or shared < logged[-1]):
            with suppress(FileNotFoundError):  # another host of this machine has just published it
                return self._recovered(logged[-1])
        manifest = restore(self.home.blobs, self.home.prefix, base)
        for entry in logged:
            self.log.remove(entry)
        return manifest

    def _recovered(self, logged: Attempt) -> Manifest:
        """Go on with an epoch that another host logged here, or this one before it gave up."""
        self.crew.probe(Moment.RECOVERING)
        self.log.open()
        work = EpochCommit.from_log(self.home, self.log, self.log.read(logged), self.mutex)
        work.seal(lambda: True, again=True)
        self.crew.probe(Moment.RECOVERED)
        self.pipeline.start(work, sealed=True)
        return work.manifest

    def _load(self, ticket: Ticket, sealer: Sealer | LocalSealer) -> Store:
        manifest = self.manifest
        said = "" if manifest is None else manifest.store
        kinds = kinds_of(ticket.operator, said)
        return open_store(
            spec=ticket.operator,
            budget=self.share,
            seal=sealer,
            segments=[] if manifest is None else self.home.open_segments(manifest, kinds),
            watermark_us=None if manifest is None else manifest.closed_through_us,
            known_keys=0 if manifest is None else manifest.keys,
            said=said,
        )

    def _forget(self) -> None:
        if self._compacted is not None:
            self._compacted.discard()
        if isinstance(self._store, MovingStore):
            self._store.abandon()
        self._store, self.manifest, self._compacted = None, None, None

    def status(self) -> dict[str, object]:
        """What is known without a look at the tables, whose memory moves under a transaction's hands."""
        epoch = self.pipeline.epoch  # first: once its seal is over, store and manifest are of one version
        unsealed = None if epoch is None or epoch.sealed.done() else epoch.work.version
        store, manifest = self._store, self.manifest
        work = None if epoch is None else epoch.work
        last = work.manifest if manifest is None and isinstance(work, EpochCommit) else manifest
        return {
            "committing": None if epoch is None or epoch.published.done() else epoch.step.name.lower(),
            "store": None if store is None else stored_as(store),
            "version": _version(manifest) if unsealed is None else unsealed,
            "keys": 0 if store is None or last is None else last.keys,
            "memory_bytes": 0 if store is None else store.memory_bytes,
            "segments": 0 if manifest is None else len(manifest.segments),
        }


def _version(manifest: Manifest | None) -> int | None:
    return None if manifest is None else manifest.version
