"""What shared storage holds of a version: an attempt's manifest or none; or storage was not read yet."""

from __future__ import annotations

from enum import Enum, auto

from headrace.format.names import Attempt


class Missing(Enum):
    """Storage was read, and has no manifest of the version."""

    ON_STORAGE = auto()


class Unknown(Enum):
    """Storage was not read."""

    NOT_ASKED = auto()


Stored = Attempt | Missing


def overtakes(stored: Stored | Unknown, attempt: Attempt) -> bool:
    """Whether storage is known to hold a newer attempt at the version of `attempt`.

    A missing version overtakes nothing: if it was collected, `publish` reports it.
    """
    return isinstance(stored, Attempt) and stored > attempt


def precedes(stored: Stored, attempt: Attempt) -> bool:
    """Whether storage lacks `attempt` and everything newer."""
    return stored is Missing.ON_STORAGE or stored < attempt
