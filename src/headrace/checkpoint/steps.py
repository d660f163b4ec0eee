"""The steps of a commit, the moments between them, and when a step is redone. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum

from headrace.errors import Fenced, RestoreState
from headrace.plan.times import TIMES


class Step(IntEnum):
    """How far an epoch is."""

    LOGGED = 0
    SEALED = 1
    UPLOADED = 2
    PUBLISHED = 3


class Moment(StrEnum):
    """The moments at which the death of a process makes a difference; tests kill at each of them."""

    LOGGING = "logging"
    LOGGED = "logged"
    SEALING = "sealing"
    SEALED = "sealed"
    UPLOADING = "uploading"
    UPLOADED = "uploaded"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    RETIRED = "retired"
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    RESCALING = "rescaling"
    RESCALED = "rescaled"
    COMPACTING = "compacting"
    COMPACTED = "compacted"
    CONDEMNED = "condemned"
    SWEEPING = "sweeping"
    SWEPT = "swept"
    PROMOTING = "promoting"
    PROMOTED = "promoted"
    EVICTING = "evicting"
    EVICTED = "evicted"


Probe = Callable[[Moment], None]


def unobserved(moment: Moment) -> None:
    """The probe of a real host: does nothing."""


class Verdict(Enum):
    WAIT = "wait"
    REDO = "redo"
    FAIL = "fail"


@dataclass(frozen=True)
class Limits:
    """When a step is redone, and when its epoch fails."""

    redos: int = 3
    first_ms: float = 100.0
    stalled_ms: float = TIMES.step_stalled_s * 1000
    bytes_per_s: int = 1 << 20  # a slower upload counts as stalled

    def upload_ms(self, nbytes: int) -> float:
        """The time that a file may take beside `stalled_ms`."""
        return nbytes / self.bytes_per_s * 1000

    def delay_ms(self, redos: int) -> float:
        return self.first_ms * 4.0**redos

    def after_error(self, error: Exception, redos: int) -> Verdict:
        """Damaged state and a newer attempt do not go away: only other errors are worth a redo."""
        final = isinstance(error, Fenced | RestoreState)
        return Verdict.FAIL if final or redos >= self.redos else Verdict.REDO

    def after_silence(self, silent_ms: float, redos: int) -> Verdict:
        """A step without progress for `stalled_ms` is redone."""
        if silent_ms < self.stalled_ms:
            return Verdict.WAIT
        return Verdict.FAIL if redos >= self.redos else Verdict.REDO
