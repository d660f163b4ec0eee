"""The logged commit: rows are in the local log before the acknowledgement, the pipeline does the rest.

The log gets the rows while results are read, and the entry its name at the commit: the first
acknowledgement. Another thread seals the rows and settles the store, before the next batch begins.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from headrace.checkpoint.commit import EpochCommit, IsCurrent
from headrace.checkpoint.log import Draft
from headrace.checkpoint.logged_files import LoggedFiles
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.steps import Moment
from headrace.files.table import Place
from headrace.format.manifest import Derived, Manifest
from headrace.host.state.base_check import BaseCheck
from headrace.host.state.spans import PhaseSpans
from headrace.host.state.strategy import Committed, Epoch, Owner, Version
from headrace.store.base.files import Gathered
from headrace.store.segments.reader import Segment


@dataclass(frozen=True)
class Drafted:
    """An epoch whose rows are in an entry that has no name yet."""

    draft: Draft
    written: list[Segment]  # before the epoch was logged
    gathered: Gathered

    @property
    def nbytes(self) -> int:
        """About what the epoch adds to the state."""
        return self.draft.row_bytes + sum(segment.size for segment in self.written)


class LoggedCommit:
    """Logs before it acknowledges (`CommitStrategy`).

    With `base_check`, a LIST of shared storage is under way, to check that the version in memory counts.
    """

    def __init__(self, owner: Owner, crew: Crew, files: LoggedFiles, *, awaits_seal: bool = False) -> None:
        self.spent_ms = {"log": 0.0}
        self.spans = PhaseSpans(crew.clock)
        self.base_check: BaseCheck | None = None
        self._owner, self._crew, self._files, self._awaits_seal = owner, crew, files, awaits_seal
        self._drafting: Future[Drafted] | None = None

    @property
    def files(self) -> LoggedFiles:
        return self._files

    def start(self, epoch: Epoch, gathered: Gathered) -> None:
        self._drafting = self._crew.sealers.submit(self._draft, gathered)

    def _draft(self, gathered: Gathered) -> Drafted:
        begun = self._crew.clock.monotonic_ms()
        self._crew.probe(Moment.LOGGING)
        written = gathered.write_early()
        draft = self._files.log.draft(self._files.plan(gathered.sections))
        self.spent_ms["log"] = self._crew.clock.monotonic_ms() - begun
        self.spans.ended("log", self.spent_ms["log"])
        return Drafted(draft, written, gathered)

    def commit(self, epoch: Epoch) -> Committed:
        assert self._drafting is not None, "finish comes before commit"
        self._check_base()
        drafted: Drafted = self._crew.wait(self._drafting)

        def log_version(version: Version) -> None:
            self._log(version, drafted)

        version = self._owner.close(epoch, self._files, drafted.written, log_version)
        if self._awaits_seal:
            self._owner.await_sealed(version.manifest.version)
        return Committed(version.manifest, drafted.nbytes)

    def _check_base(self) -> None:
        check = self.base_check
        if check is None:
            return
        if check.vouched:
            self._owner.check_later(check)
        else:
            check.check(self._crew.wait)

    def _log(self, version: Version, drafted: Drafted) -> None:
        """Names the entry, and starts the pipeline."""
        manifest, base, home, log = version.manifest, version.base, self._files.home, self._files.log
        before = set() if base is None else {entry.name for entry in base.segments}
        fresh = [entry.name for entry in manifest.segments if entry.name not in before]
        local = [name for name in fresh if home.files.place_of(name) is Place.LOG]
        parent = None if base is None or isinstance(base, Derived) else base.name
        drafted.draft.finish(manifest, parent, version.ticket.operator.to_json(), local)
        self._crew.probe(Moment.LOGGED)

        def seal(is_current: IsCurrent) -> Manifest | None:
            return self._owner.sealed(version, drafted.gathered.write_rows(), is_current)

        place = (home, log, manifest, base, frozenset(local))
        self._owner.logged(EpochCommit(*place, seal, self._files.is_uploaded))

    def abort(self) -> None:
        with suppress(Exception):  # `commit` reports it
            if self._drafting is not None:
                self._crew.wait(self._drafting).draft.discard()
        self._files.discard()
