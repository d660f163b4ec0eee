"""Every error that Headrace raises, grouped by what the reader does next.

    HeadraceError
    ├── FixTheCall        the query or a setting is wrong; nothing was written
    │   ├── SettingError      a spark.headrace.* setting
    │   ├── QueryError        columns, types, emit mode, names
    │   └── OperatorChanged   a restart whose operator differs from its state
    ├── TryAgain          the same call may work later (Spark's task retry does it)
    │   ├── HostUnavailable   no state host answered
    │   └── Fenced            a newer attempt took over; this one must stop
    ├── ReadBack          maybe applied: read back and compare before going on
    │   ├── MaybeApplied      the reply was lost
    │   └── AlreadyExists     the name is taken, perhaps by this very write
    └── RestoreState      state on storage is not what it must be
        ├── StateMissing      a location, version or file is not there
        │   └── BlobMissing       one name is not there, its location is
        ├── StateCorrupt      a checksum, length or magic does not match
        └── StateUnsupported  written by a newer format

An error crosses the wire as JSON (`to_json`, `from_json`) and keeps its class.
"""

from __future__ import annotations

import json


class HeadraceError(Exception):
    """Base of all errors: a message, and a hint that says what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n  → {hint}" if hint else message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self).__name__, self.message, self.hint)

    def to_json(self) -> str:
        return json.dumps({"error": type(self).__name__, "message": self.message, "hint": self.hint})


class FixTheCall(HeadraceError):
    """The query or a setting is wrong; nothing was written."""


class SettingError(FixTheCall):
    """A `spark.headrace.*` setting is unknown or malformed."""


class QueryError(FixTheCall):
    """The operator cannot be built as written."""


class OperatorChanged(FixTheCall):
    """The operator differs from the one that wrote its state."""


class ArithmeticOverflow(FixTheCall):
    """A sum left the range of its type (ANSI mode)."""


class TryAgain(HeadraceError):
    """The same call may work later."""


class HostUnavailable(TryAgain):
    """No state host answered."""


class Fenced(TryAgain):
    """A newer attempt owns the partition; this one must stop."""


class ReadBack(HeadraceError):
    """Whether it was applied is not known."""


class MaybeApplied(ReadBack):
    """A write may have been applied: read it back and compare its write id."""


class AlreadyExists(ReadBack):
    """The name is taken: read back to learn by whom."""


class RestoreState(HeadraceError):
    """State on storage is not what it must be."""


class StateMissing(RestoreState):
    """A location, version or file that must exist does not."""


class BlobMissing(StateMissing):
    """One name is absent from a location that is there."""


class StateCorrupt(RestoreState):
    """Bytes on storage fail their checksum, length or magic."""


class StateUnsupported(RestoreState):
    """Written in a format this release cannot read."""


def _subclasses(of: type[HeadraceError]) -> list[type[HeadraceError]]:
    return [of, *(sub for child in of.__subclasses__() for sub in _subclasses(child))]


def _rebuild(name: str, message: str, hint: str) -> HeadraceError:
    by_name = {cls.__name__: cls for cls in _subclasses(HeadraceError)}
    return by_name.get(name, HeadraceError)(message, hint=hint)


def from_json(text: str) -> HeadraceError | None:
    """The error that `to_json` wrote, or None when the text is not one."""
    start = text.find('{"error": ')
    if start < 0:
        return None
    try:
        said, _ = json.JSONDecoder().raw_decode(text[start:])
        return _rebuild(said["error"], said["message"], said["hint"])
    except (ValueError, KeyError, TypeError):
        return None
