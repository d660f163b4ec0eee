"""The commit pipeline: the steps of an epoch between its two acknowledgements.

    logged ──▶ sealed ──▶ uploaded ──▶ published
    ack 1                              ack 2

Invariants: at most one epoch of a partition is under way. Every step may be done again, by this process or
the next, because names and write id are fixed in the log. A step that fails or stalls is redone from the
log. After a limit the epoch *fails*, and the next wait for it raises the reason, once.
Threads: `start`, `drop` and the waits from the partition's callers; steps run in the crew's threads; `look`
from the host's watch. One lock guards the epoch's turn and step.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.checkpoint.steps import Limits, Moment, Probe, Step, Verdict, unobserved
from headrace.clock import Clock, SystemClock
from headrace.errors import Fenced, HeadraceError, TryAgain
from headrace.format.manifest import Manifest

log = logging.getLogger("headrace.commit")

SEALERS = 4  # segments written at a time
READERS = 4  # fetches of state ahead of rows at a time, over all partitions of a host
UPLOADS = 4  # epochs uploaded at a time, over all partitions of a host


class Work(Protocol):
    """The steps of one epoch."""

    version: int

    @property
    def manifest(self) -> Manifest:
        """The manifest as far as it is known: after the seal it has all segments."""

    def seal(self, is_current: Callable[[], bool], *, again: bool) -> None:
        """Writes the segments to the local disk; `again`: from the log, not from memory."""

    def upload(self, progressed: Callable[[int], None]) -> None:
        """Uploads the files that shared storage lacks, and calls `progressed` with the size of each."""

    def publish(self) -> None:
        """Puts the manifest."""

    def retire(self) -> None:
        """Removes the log entry."""


def wait_for(future: Future[Any]) -> Any:
    return future.result()


def in_new_thread(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="commit-again", daemon=True).start()


@dataclass(frozen=True)
class Crew:
    """The threads of a host's background work; simulations use a crew that works step by step."""

    sealers: Executor = field(
        default_factory=lambda: ThreadPoolExecutor(SEALERS, thread_name_prefix="seal")
    )
    uploads: Executor = field(
        default_factory=lambda: ThreadPoolExecutor(UPLOADS, thread_name_prefix="upload")
    )
    readers: Executor = field(
        default_factory=lambda: ThreadPoolExecutor(READERS, thread_name_prefix="read-ahead")
    )
    wait: Callable[[Future[Any]], Any] = wait_for
    rescue: Callable[[Callable[[], None]], None] = in_new_thread  # the pools may have stalled
    clock: Clock = field(default_factory=SystemClock)
    limits: Limits = field(default_factory=Limits)
    probe: Probe = unobserved
    watched: bool = True  # whether the host looks for steps that stall

    def close(self) -> None:
        """Finishes the work under way first."""
        self.sealers.shutdown(wait=True)
        self.uploads.shutdown(wait=True)
        self.readers.shutdown(wait=True, cancel_futures=True)


@dataclass
class Epoch:
    """One epoch under way."""

    work: Work
    step: Step = Step.LOGGED
    turn: int = 0  # counts redos after a stall: the thread of an earlier turn is ignored
    redos: int = 0
    progressed_ms: float = 0.0
    sealed: Future[None] = field(default_factory=Future)
    published: Future[None] = field(default_factory=Future)
    spent_ms: dict[str, float] = field(default_factory=dict)
    ended_ms: dict[str, int] = field(default_factory=dict)  # when a step was over, since 1970

    def end(self, error: HeadraceError) -> None:
        """Makes every wait for the epoch raise `error`."""
        for future in (self.sealed, self.published):
            if not future.done():
                future.set_exception(error)


class CommitPipeline:
    """The epochs of one partition after their first acknowledgement."""

    def __init__(self, crew: Crew, name: str, is_storage_away: Callable[[], bool] = lambda: False) -> None:
        self._crew, self._name, self._is_storage_away = crew, name, is_storage_away
        self._lock = threading.Lock()
        self._epoch: Epoch | None = None

    @property
    def epoch(self) -> Epoch | None:
        """The epoch under way, or the last one."""
        return self._epoch

    @property
    def sealing(self) -> int | None:
        """The version that is logged and not sealed yet; None when there is none."""
        epoch = self._epoch
        return None if epoch is None or epoch.sealed.done() else epoch.work.version

    def start(self, work: Work, *, sealed: bool = False) -> Epoch:
        """Continues an epoch that is logged, and perhaps sealed."""
        epoch = Epoch(
            work, Step.SEALED if sealed else Step.LOGGED, progressed_ms=self._crew.clock.monotonic_ms()
        )
        with self._lock:
            self._epoch = epoch
        if sealed:
            epoch.sealed.set_result(None)
            self._crew.uploads.submit(self._work, epoch, 0)
        else:
            self._crew.sealers.submit(self._work, epoch, 0)
        return epoch

    def drop(self) -> None:
        """Gives up the epoch under way; its files are removed with a later version."""
        with self._lock:
            epoch, self._epoch = self._epoch, None
            if epoch is not None:
                epoch.turn += 1
                epoch.end(Fenced(f"version {epoch.work.version} of {self._name} was overtaken"))

    def await_sealed(self, version: int | None) -> None:
        """Waits until the epoch `version`, if it is under way here, is sealed; raises why it failed."""
        self._await(version, lambda epoch: epoch.sealed)

    def await_published(self, version: int | None) -> Epoch | None:
        """Waits until shared storage has the epoch `version`; raises why it failed."""
        return self._await(version, lambda epoch: epoch.published)

    def _await(self, version: int | None, of: Callable[[Epoch], Future[None]]) -> Epoch | None:
        epoch = self._epoch
        if epoch is None or epoch.work.version != version:
            return None
        try:
            self._crew.wait(of(epoch))
        except HeadraceError:
            self.drop()  # raised once: the next attempt begins again from the log
            raise
        return epoch

    # ── the steps ────────────────────────────────────────────────────────────────────────────

    def _work(self, epoch: Epoch, turn: int) -> None:
        """Works on the epoch up to the seal, or from there to the end."""
        while epoch.turn == turn and epoch.step < Step.PUBLISHED:
            sealing = epoch.step < Step.SEALED
            try:
                self._take_step(epoch, turn)
            except Exception as error:
                if not self._again(epoch, turn, error):
                    return
                continue
            if sealing and epoch.turn == turn:
                self._crew.uploads.submit(self._work, epoch, turn)
                return

    def _take_step(self, epoch: Epoch, turn: int) -> None:
        work, probe, begun = epoch.work, self._crew.probe, self._crew.clock.monotonic_ms()
        if epoch.step is Step.LOGGED:
            probe(Moment.SEALING)
            work.seal(lambda: epoch.turn == turn, again=epoch.redos > 0)
            self._reached(epoch, turn, Step.SEALED, "seal", begun)
            probe(Moment.SEALED)
        elif epoch.step is Step.SEALED:
            work.upload(lambda nbytes: self._progressed(epoch, turn, nbytes))
            self._reached(epoch, turn, Step.UPLOADED, "upload", begun)
            probe(Moment.UPLOADED)
        else:
            probe(Moment.PUBLISHING)
            work.publish()
            probe(Moment.PUBLISHED)
            work.retire()
            self._reached(epoch, turn, Step.PUBLISHED, "publish", begun)
            probe(Moment.RETIRED)

    def _reached(self, epoch: Epoch, turn: int, step: Step, name: str, begun_ms: float) -> None:
        with self._lock:
            if epoch.turn != turn:
                return
            epoch.step, epoch.progressed_ms = step, self._crew.clock.monotonic_ms()
            epoch.ended_ms[name] = self._crew.clock.now_ms()
            epoch.spent_ms[name] = epoch.spent_ms.get(name, 0.0) + epoch.progressed_ms - begun_ms
            if step is Step.SEALED:
                epoch.sealed.set_result(None)
            if step is Step.PUBLISHED:
                epoch.published.set_result(None)
        if step is Step.PUBLISHED:
            spent = ", ".join(f"{name} {ms:.1f}" for name, ms in epoch.spent_ms.items())
            log.info("%s version %d: hidden ms: %s", self._name, epoch.work.version, spent)

    def _progressed(self, epoch: Epoch, turn: int, nbytes: int) -> None:
        """A file is about to be uploaded: it may take as long as its size needs on slow storage."""
        if epoch.turn == turn:
            epoch.progressed_ms = self._crew.clock.monotonic_ms() + self._crew.limits.upload_ms(nbytes)
        self._crew.probe(Moment.UPLOADING)

    # ── trouble ──────────────────────────────────────────────────────────────────────────────

    def _again(self, epoch: Epoch, turn: int, error: Exception) -> bool:
        """Whether this thread redoes the step; waits before it returns True."""
        limits = self._crew.limits
        with self._lock:
            if epoch.turn != turn:
                return False
            redos, epoch.redos = epoch.redos, epoch.redos + 1
        if limits.after_error(error, redos) is Verdict.FAIL:
            self._fail(epoch, turn, error)
            return False
        log.warning("%s version %d: %s; it is done again", self._name, epoch.work.version, error)
        self._crew.clock.sleep_ms(limits.delay_ms(redos))
        with self._lock:
            epoch.progressed_ms = self._crew.clock.monotonic_ms()
        return True

    def look(self) -> None:
        """Redoes a step that has stalled in another thread."""
        epoch = self._epoch
        if epoch is None or epoch.published.done():
            return
        if self._is_storage_away():
            epoch.progressed_ms = self._crew.clock.monotonic_ms()  # its time starts again
            return
        silent_ms = self._crew.clock.monotonic_ms() - epoch.progressed_ms
        verdict = self._crew.limits.after_silence(silent_ms, epoch.redos)
        if verdict is Verdict.WAIT:
            return
        reason = f"step {epoch.step.name.lower()} made no progress for {silent_ms / 1000:.0f} s"
        if verdict is Verdict.FAIL:
            self._fail(epoch, epoch.turn, TryAgain(reason))
            return
        with self._lock:
            epoch.turn, epoch.redos = epoch.turn + 1, epoch.redos + 1
            epoch.progressed_ms = self._crew.clock.monotonic_ms()
            turn = epoch.turn
        log.warning("%s version %d: %s; it is done again", self._name, epoch.work.version, reason)
        self._crew.rescue(lambda: self._work(epoch, turn))

    def _fail(self, epoch: Epoch, turn: int, error: Exception) -> None:
        with self._lock:
            if epoch.turn != turn:
                return
            epoch.turn += 1
            epoch.end(_poison(self._name, epoch, error))
        log.error("%s version %d cannot be committed: %s", self._name, epoch.work.version, error)


def _poison(name: str, epoch: Epoch, error: Exception) -> HeadraceError:
    reason = error.message if isinstance(error, HeadraceError) else repr(error)
    hint = error.hint if isinstance(error, HeadraceError) and error.hint else ""
    step = epoch.step.name.lower()
    return TryAgain(
        f"version {epoch.work.version} of {name} could not be committed after {step}: {reason}",
        hint=f"the next attempt goes on from the local log{'; ' + hint if hint else ''}",
    )
