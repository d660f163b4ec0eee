"""Finds the manifest of a version, and opens the store at it.

A version is read from where it is: the files of the epoch under way, shared storage, or the log of a host
that died. Of several attempts at a version the newest run's newest attempt counts.
Threads: the partition's lock guards every call, except `newest`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from headrace.cache.policy import Policy
from headrace.checkpoint.commit import EpochCommit
from headrace.checkpoint.epoch_files import EpochFiles
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.log_check import recoverable
from headrace.checkpoint.operator_record import ensure_operator
from headrace.checkpoint.pipeline import CommitPipeline, Crew, Epoch
from headrace.checkpoint.rescale.derive import derived_base
from headrace.checkpoint.restore import newest_manifest, read_manifest, refuse_older, restore
from headrace.checkpoint.runs import refuse_later
from headrace.checkpoint.steps import Moment
from headrace.errors import BlobMissing, StateMissing
from headrace.format.manifest import Manifest
from headrace.format.names import Attempt, manifest_name, manifests_of, parse_manifest
from headrace.host.state.stored import Missing, Stored, Unknown, overtakes, precedes
from headrace.operators.open import kinds_of, open_store
from headrace.plan.spec import OperatorSpec
from headrace.store.base.budget import PartitionShare
from headrace.store.base.contract import Store
from headrace.wire.contract import Ticket


class Versions:
    """The versions of one partition."""

    def __init__(
        self, home: PartitionHome, crew: Crew, pipeline: CommitPipeline, policy: Policy | None = None
    ) -> None:
        self._home, self._crew, self._pipeline, self._policy = home, crew, pipeline, policy

    @property
    def log(self) -> LocalLog:
        assert self._home.log is not None, "the host has a local directory"
        return self._home.log

    def newest(self, ticket: Ticket) -> Stored:
        """The attempt at the base whose manifest counts on shared storage."""
        if ticket.base is None or ticket.origin is not None:
            return Missing.ON_STORAGE
        name = newest_manifest(self._home.blobs.list(manifests_of(self._home.prefix, ticket.base)))
        attempt = None if name is None else parse_manifest(name)
        return Missing.ON_STORAGE if attempt is None else attempt

    def is_held(
        self, ticket: Ticket, store: Store | None, manifest: Manifest | None, newest: Stored | Unknown
    ) -> bool:
        """Whether the store in memory is the base, and reads rows as the ticket's operator does.

        The version number is not enough: while another host had the partition, a newer run or attempt may
        have written the same version again. `publish` reports a version that is gone.
        """
        if store is None or manifest is None or manifest.version != ticket.base:
            return False
        if ticket.origin is not None:  # a retry derives its base again
            return False
        return store.spec == ticket.operator and not overtakes(newest, manifest.written_by)

    def manifest_at(self, ticket: Ticket, newest: Stored, run: int) -> Manifest | None:
        """The manifest of the base: of the epoch under way, of a log left behind, or as published.

        A base in another layout is derived; what this folder has of the version is of no committed batch.
        """
        base, epoch = ticket.base, self._pipeline.epoch
        if ticket.origin is not None:
            self._pipeline.drop()
            self._crew.probe(Moment.RESCALING)
            derived = derived_base(self._home, ticket, run, self._crew.clock)
            self._crew.probe(Moment.RESCALED)
            return derived
        under_way = self.logged_manifest(epoch)
        if under_way is not None:
            if not overtakes(newest, under_way.written_by):
                return under_way
            self._pipeline.drop()
        logged = [] if base is None else recoverable(self._home, self.log, base)
        if logged and precedes(newest, logged[-1]):
            with suppress(FileNotFoundError):  # another host of this machine has just published it
                return self._recovered(logged[-1])
        manifest = self._restored(base, newest)
        for entry in logged:
            self.log.remove(entry)
        return manifest

    def _restored(self, base: int | None, newest: Stored) -> Manifest | None:
        """The manifest on storage. Elsewhere a second look at its name, or at each file, is a request."""
        blobs, prefix = self._home.blobs, self._home.prefix
        try:
            if isinstance(newest, Attempt) and not blobs.in_place:
                name = manifest_name(*newest)
                with suppress(BlobMissing):
                    return self._home.known_manifest(name) or read_manifest(blobs, f"{prefix}/{name}")
            return restore(blobs, prefix, base, check_files=blobs.in_place)
        except StateMissing as error:
            damaged = [] if base is None else self.log.set_aside_of(base)
            if not damaged:
                raise
            raise StateMissing(f"{error.message}; {damaged[-1]} is damaged", hint=error.hint) from error

    def logged_manifest(self, epoch: Epoch | None) -> Manifest | None:
        """The manifest of the epoch that the pipeline works on."""
        return None if epoch is None else epoch.work.manifest

    def _recovered(self, logged: Attempt) -> Manifest:
        """Goes on with an epoch that another host logged here, or this one before it gave up."""
        self._crew.probe(Moment.RECOVERING)
        self.log.open()
        work = EpochCommit.from_log(self._home, self.log, self.log.read(logged))
        work.seal(lambda: True, again=True)
        self._crew.probe(Moment.RECOVERED)
        self._pipeline.start(work, sealed=True)
        return work.manifest

    def operator_check(self, ticket: Ticket) -> Callable[[], OperatorSpec]:
        """The check of the operator's record; it may be under way already."""
        place, clock = (self._home.blobs, ticket.query, ticket.operator), self._crew.clock
        if ticket.base is None:
            return partial(ensure_operator, *place, create=True, clock=clock)
        return self._home.files.beside(partial(ensure_operator, *place, create=False, clock=clock))

    def open(
        self,
        ticket: Ticket,
        manifest: Manifest | None,
        budget: PartitionShare,
        files: EpochFiles,
        check: Callable[[], OperatorSpec],
    ) -> Store:
        """Opens the store at a manifest; without one, an empty store."""
        refuse_older(manifest, ticket.base_run)
        home = self._home
        refuse_later(home.blobs, ticket.query, manifest, files.run)
        check()
        store = "" if manifest is None else manifest.store
        kinds = kinds_of(ticket.operator, store)
        return open_store(
            spec=ticket.operator,
            budget=budget,
            files=files,
            segments=[] if manifest is None else home.open_segments(manifest, kinds),
            watermark_us=None if manifest is None else manifest.closed_through_us,
            known_keys=0 if manifest is None else manifest.keys,
            recorded=store,
            policy=self._policy,
        )
