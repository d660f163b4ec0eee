"""One partition of one operator at this host: its committed version, and who may write the next one.

Invariants: at most one transaction is current. A newer attempt fences the older one and drops its store,
so the two never share memory. The store is at the manifest's version and clean in the states IDLE and
SEALED (`states`); in any other state it is dropped and opened again, or settled by a seal.
A partition counts in the memory budget from its first `begin` until `rest`.
Threads: any. The partition's lock guards all of it; sealing flushes rows outside the lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.cache.policy import Policy
from headrace.checkpoint.commit import EpochCommit, IsCurrent
from headrace.checkpoint.epoch_files import EpochFiles, PublishedFiles, UploadsAhead
from headrace.checkpoint.home import PartitionHome, entry_of
from headrace.checkpoint.logged_files import LoggedFiles
from headrace.checkpoint.pipeline import CommitPipeline, Crew
from headrace.checkpoint.pipeline import Epoch as PipelineEpoch
from headrace.checkpoint.steps import Step
from headrace.errors import Fenced, TryAgain
from headrace.format.manifest import Manifest
from headrace.host.compaction.remote import RemoteCompaction
from headrace.host.state.base_check import BaseCheck, is_vouched
from headrace.host.state.commit_logged import LoggedCommit
from headrace.host.state.commit_published import PublishedCommit
from headrace.host.state.maintenance import Finished, Maintenance
from headrace.host.state.opening import Versions
from headrace.host.state.spans import BackgroundSpans
from headrace.host.state.states import State
from headrace.host.state.stored import Unknown
from headrace.host.state.strategy import CommitStrategy, Epoch, Version
from headrace.host.state.transaction import PartitionTransaction
from headrace.host.state.upkeep import Upkeep
from headrace.store.base.budget import MemoryBudget, PartitionShare
from headrace.store.base.contract import Store
from headrace.store.segments.reader import Segment
from headrace.wire.contract import Span, Ticket

log = logging.getLogger("headrace.host")


@dataclass(frozen=True, order=True)
class Claim:
    """Who writes: a later run fences an earlier one, then a later attempt."""

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
        policy: Policy | None = None,
        number: int = 0,
        remote: RemoteCompaction | None = None,
    ) -> None:
        self.number = number
        self.home, self._budget, self._crew, self._pipeline = home, budget, crew, pipeline
        self._versions = Versions(home, crew, pipeline, policy)
        self.background = BackgroundSpans()
        self.opened_ms = 0.0  # reading the current transaction's base; 0 where memory had it
        self._maintenance = Maintenance(home, upkeep, crew, self.background, remote)
        self._lock = threading.Lock()
        self._state = State.IDLE
        self._store: Store | None = None
        self._manifest: Manifest | None = None  # the store's version; None: at no version
        self._claim = Claim(0, -1)
        self._current: PartitionTransaction | None = None
        self._check: BaseCheck | None = None  # of a batch that did not wait for the answer
        self._share: PartitionShare | None = None
        self._used_ms = self._crew.clock.monotonic_ms()

    # ── begin ────────────────────────────────────────────────────────────────────────────────

    def begin(self, ticket: Ticket, run: int) -> PartitionTransaction:
        """A transaction for the ticket's attempt; the one before it, if any, is fenced."""
        claim = Claim(run, ticket.attempt)
        self._finish_check()
        self._await_compaction()
        while True:
            self._pipeline.await_sealed(ticket.base)
            with self._lock:
                if claim < self._claim:
                    raise Fenced(
                        f"attempt {ticket.attempt} of batch {ticket.batch}, partition {ticket.partition} "
                        f"came after attempt {self._claim.attempt}, which owns the partition",
                        hint="nothing to do: the newer attempt goes on",
                    )
                if self._pipeline.sealing != ticket.base or ticket.base is None:
                    return self._begin(ticket, run, claim)

    def _await_compaction(self) -> None:
        """Waits for the compaction under way if segments have piled up beyond the bound."""
        overdue = self._maintenance.overdue(self._store)
        if overdue is not None:
            self._crew.wait(overdue)

    def _finish_check(self) -> None:
        """Looks at the answer that storage gave while the last batch ran."""
        check, self._check = self._check, None
        if check is None:
            return
        try:
            check.check(self._crew.wait)
        except TryAgain:
            with self._lock:
                self._forget()
            raise

    def _begin(self, ticket: Ticket, run: int, claim: Claim) -> PartitionTransaction:
        if self._current is not None:
            self._current.stale = True
            self._forget()
        epoch = self._pipeline.epoch
        if epoch is not None and epoch.work.version != ticket.base:
            self._pipeline.drop()  # its batch runs again; until that is logged too, its entry stays
            self._forget()
        self._used_ms = self._crew.clock.monotonic_ms()
        self.opened_ms = 0.0
        store, strategy = self._opened(ticket, run)
        store.begin_epoch(self.home)
        store.look_ahead(self._crew.readers if ticket.lookahead else None)
        self._claim, self._state = claim, self._state.to(State.RUNNING)
        self._current = PartitionTransaction(
            self, self.home, ticket, store, self._manifest, strategy, self.share, self._crew.clock
        )
        return self._current

    def _opened(self, ticket: Ticket, run: int) -> tuple[Store, CommitStrategy]:
        """The store at the ticket's base, and how the ticket commits."""
        ahead = UploadsAhead(self._crew.uploads, self._crew.wait)
        if ticket.commit == "sync":
            files = PublishedFiles(self.home, ticket, run, ahead)
            return self._store_at(ticket, files), PublishedCommit(self, self._crew, files)
        log = self._versions.log
        log.open()
        logged = LoggedFiles(self.home, log, ticket, run, ahead)
        strategy = LoggedCommit(self, self._crew, logged, awaits_seal=ticket.commit == "upload")
        if not self._versions.is_held(ticket, self._store, self._manifest, Unknown.NOT_ASKED):
            return self._store_at(ticket, logged), strategy
        assert self._store is not None
        assert self._manifest is not None
        self._store.files = logged
        strategy.base_check = self._ask(ticket, run, self._manifest)
        return self._store, strategy

    def _ask(self, ticket: Ticket, run: int, manifest: Manifest) -> BaseCheck:
        """Checks at storage, beside the batch, whether the version in memory still counts.

        A batch that waits for the answer gets it from a sealer thread, which has nothing else to do.
        """
        vouched = is_vouched(manifest, ticket, run)
        threads = self._crew.uploads if vouched else self._crew.sealers
        answer = threads.submit(self._versions.newest, ticket)
        return BaseCheck(answer, manifest.written_by, vouched)

    def _store_at(self, ticket: Ticket, files: EpochFiles) -> Store:
        """The store at the ticket's base: the one in memory if it counts, else a new one."""
        check = self._versions.operator_check(ticket) if self._store is None else None
        newest = self._versions.newest(ticket)
        if self._versions.is_held(ticket, self._store, self._manifest, newest):
            assert self._store is not None
            self._store.files = files
            return self._store
        self._forget()
        began_ms = self._crew.clock.now_ms()
        self._manifest = self._versions.manifest_at(ticket, newest, files.run)
        check = check or self._versions.operator_check(ticket)
        self._store = self._versions.open(ticket, self._manifest, self.share, files, check)
        self._maintenance.relieve(self._store, ticket, files.run)
        ended_ms = self._crew.clock.now_ms()
        self.opened_ms = float(ended_ms - began_ms)
        if self._manifest is not None:
            self.background.add(Span("open", began_ms, ended_ms))
        return self._store

    # ── commit (`strategy.Owner`) ────────────────────────────────────────────────────────────

    def close(
        self,
        epoch: Epoch,
        files: EpochFiles,
        written: Sequence[Segment],
        conclude: Callable[[Version], None],
    ) -> Version:
        with self._lock:
            epoch.check()
            version = epoch.version([*self._maintenance.commit(epoch.store, files), *written])
            conclude(version)
            return version

    def published(self, version: Version) -> None:
        left = self._hints_left()
        self._end(State.IDLE)
        self._manifest = version.manifest
        self._expect(left)

    def logged(self, work: EpochCommit) -> None:
        """Until its seal the store is at no version; a seal that fails leaves it so."""
        left = self._hints_left()
        self._end(State.LOGGED)
        self._manifest = None
        self._expect(left)
        self._pipeline.start(work)

    def sealed(self, version: Version, fresh: Sequence[Segment], is_current: IsCurrent) -> Manifest | None:
        with self._lock:
            if not is_current():
                return None
            entries = (*version.manifest.segments, *map(entry_of, fresh))
            sealed = replace(version.manifest, segments=entries)
            version.store.settle([*version.segments, *fresh], version.closed_through_us)
            self._manifest, self._state = sealed, self._state.to(State.SEALED)
            self.maintain(version.ticket)
            return sealed

    def await_sealed(self, version: int) -> None:
        self._pipeline.await_sealed(version)

    def await_published(self, version: int | None) -> PipelineEpoch | None:
        return self._pipeline.await_published(version)

    def check_later(self, check: BaseCheck) -> None:
        self._check = check

    def abort(self, transaction: PartitionTransaction) -> None:
        """An aborted transaction takes its store with it; one that is over already changes nothing."""
        with self._lock:
            if self._current is transaction:
                self._end(State.IDLE)
                self._forget()

    def _end(self, state: State) -> None:
        self._current, self._state = None, self._state.to(state)
        self._used_ms = self._crew.clock.monotonic_ms()

    # ── hints ────────────────────────────────────────────────────────────────────────────────

    def expect(self, hints: pa.RecordBatch) -> None:
        """Rows with these hashes will come; while a transaction runs, its own thread takes the hints.

        Hints are no use of the partition: its memory is freed as if they had not come.
        """
        with self._lock:
            if self._current is not None:
                self._current.expect(hints)
            elif self._store is not None:
                self._store.expect(hints)

    def _hints_left(self) -> list[pa.RecordBatch]:
        """Hints that came while the transaction ran and that it had no more rows to take with: the next
        batch's."""
        return [] if self._current is None else self._current.hints_left()

    def _expect(self, left: list[pa.RecordBatch]) -> None:
        try:
            for hints in left:
                if self._store is not None:
                    self._store.expect(hints)
        except Exception as error:  # lost hints: the version that was committed just now stays
            log.info("hints for the next batch are lost: %s", error)

    # ── maintenance ──────────────────────────────────────────────────────────────────────────

    def maintain(self, ticket: Ticket) -> None:
        if self._store is not None and self._manifest is not None:
            self.home.roll_up(self._manifest, self._store.segments)
        self._maintenance.after_commit(self._store, ticket, self._claim.run, self.deliver)

    def deliver(self, store: Store, finished: Finished) -> None:
        """A job on `store` has finished."""
        with self._lock:
            self._maintenance.take(finished, is_wanted=self._store is store)

    def look(self) -> None:
        """Redoes a step of the commit under way that has stalled."""
        self._pipeline.look()

    @property
    def store(self) -> Store | None:
        """The store in memory."""
        return self._store

    @property
    def awaits_check(self) -> bool:
        """Whether a batch committed before storage had confirmed its base."""
        return self._check is not None

    @property
    def is_locked(self) -> bool:
        """Whether a thread is at work under the partition's lock; for simulations."""
        return self._lock.locked()

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    def rest(self, idle_s: float) -> None:
        """Frees memory and share after `idle_s` without a batch; the next `begin` opens the store again."""
        if not self._lock.acquire(blocking=False):
            return  # a transaction begins or commits right now
        try:
            is_idle = self._state is not State.RUNNING and self._pipeline.sealing is None
            unused_ms = self._crew.clock.monotonic_ms() - self._used_ms
            if self._share is not None and is_idle and unused_ms >= idle_s * 1000:
                self._forget()
                self._maintenance.sweep()
                self._share.close()
                self._share = None
        finally:
            self._lock.release()

    @property
    def is_at_rest(self) -> bool:
        """Whether it has neither memory nor work, so that a new object may take its place."""
        epoch = self._pipeline.epoch
        is_done = epoch is None or epoch.published.done()
        return self._share is None and self._state is not State.RUNNING and is_done

    def close_log(self) -> None:
        """Removes the empty folders of the log, once the query has ended."""
        if self.home.log is not None:
            self.home.log.close()

    @property
    def share(self) -> PartitionShare:
        """The memory that its store may take."""
        if self._share is None:
            self._share = self._budget.join()
        return self._share

    def _forget(self) -> None:
        """Drops the store."""
        if self._store is not None:
            self._store.look_ahead(None)
        self._maintenance.drop(self._store)
        self._store = self._manifest = None

    def status(self) -> dict[str, object]:
        """The status without a look at the tables, whose arrays move while a transaction runs."""
        epoch = self._pipeline.epoch  # first: after its seal, store and manifest are of one version
        unsealed = self._pipeline.sealing
        store, manifest = self._store, self._manifest
        last = self._versions.logged_manifest(epoch) if manifest is None else manifest
        version = None if manifest is None else manifest.version
        return {
            "partition": self.number,
            "committing": None if epoch is None or epoch.published.done() else epoch.step.name.lower(),
            "published": epoch.work.version if epoch is not None and epoch.step is Step.PUBLISHED else None,
            "store": None if store is None else store.stored_as,
            "version": version if unsealed is None else unsealed,
            "keys": 0 if store is None or last is None else last.keys,
            "memory_bytes": 0 if store is None else store.memory_bytes,
            "segments": 0 if manifest is None else len(manifest.segments),
        }
