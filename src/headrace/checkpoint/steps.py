"""The steps of a commit, the moments between them, and when a step is done again. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum

from headrace.errors import Fenced, RestoreState


class Step(IntEnum):
    """How far an epoch is."""

    LOGGED = 0
    SEALED = 1
    UPLOADED = 2
    PUBLISHED = 3


class Moment(StrEnum):
    """Every moment at which a process may die in a way that matters; tests kill at each of them."""

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


Probe = Callable[[Moment], None]


def unobserved(moment: Moment) -> None:
    """Nobody looks."""


class Verdict(Enum):
    WAIT = "wait"
    REDO = "redo"
    FAIL = "fail"


@dataclass(frozen=True)
class Limits:
    """When a step is done again, and when that is given up."""

    redos: int = 3
    first_ms: float = 100.0
    stalled_ms: float = 60_000.0

    def delay_ms(self, redos: int) -> float:
        return self.first_ms * 4.0**redos

    def after_error(self, error: Exception, redos: int) -> Verdict:
        """State that is not what it must be, or that a newer attempt owns, does not get better."""
        final = isinstance(error, Fenced | RestoreState)
        return Verdict.FAIL if final or redos >= self.redos else Verdict.REDO

    def after_silence(self, silent_ms: float, redos: int) -> Verdict:
        """A step that says nothing for long is done again."""
        if silent_ms < self.stalled_ms:
            return Verdict.WAIT
        return Verdict.FAIL if redos >= self.redos else Verdict.REDO
