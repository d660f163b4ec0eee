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
from collections.abc import Iterable
from difflib import get_close_matches


class HeadraceError(Exception):
    """Base of all errors: a message, and a hint with the next step for the reader.

    Examples
    --------
    >>> from headrace import HeadraceError
    >>> print(HeadraceError("the disk is full", hint="make room and start the query again"))
    the disk is full
      → make room and start the query again
    """

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
    """A `spark.headrace.*` setting is unknown or malformed.

    Examples
    --------
    >>> import headrace as hr
    >>> spark.conf.set("spark.headrace.comit", "async")
    >>> try:
    ...     hr.stream(events).groupBy("user").count()
    ... except hr.SettingError as error:
    ...     print(error.message, error.hint.partition(";")[0], sep=" → ")
    ... finally:
    ...     spark.conf.unset("spark.headrace.comit")
    spark.headrace.comit is not a setting → did you mean spark.headrace.commit?
    """


class QueryError(FixTheCall):
    """The operator cannot be built as written.

    Examples
    --------
    >>> import headrace as hr
    >>> try:
    ...     hr.stream(events).groupBy("usr").count()
    ... except hr.QueryError as error:
    ...     print(error)
    groupBy: there is no column usr
      → did you mean user? columns are user, ts, amount, page
    """


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
    """The write may or may not have been applied."""


class MaybeApplied(ReadBack):
    """A write may have been applied: read it back and compare its write id."""


class AlreadyExists(ReadBack):
    """The name exists already: read it back and compare."""


class RestoreState(HeadraceError):
    """State on storage is not what it must be."""


class StateMissing(RestoreState):
    """A location, version or file that must exist does not."""


class BlobMissing(StateMissing):
    """One name is missing from a location that exists."""


class StateCorrupt(RestoreState):
    """Bytes on storage fail their checksum, length or magic."""


class StateUnsupported(RestoreState):
    """Written in a format this release cannot read."""


def did_you_mean(name: str, known: Iterable[str], *, after: str = "") -> str:
    """A question that names what was probably meant, followed by `after`; empty when nothing is close."""
    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]}?{after}" if close else ""


def _subclasses(of: type[HeadraceError]) -> list[type[HeadraceError]]:
    return [of, *(sub for child in of.__subclasses__() for sub in _subclasses(child))]


def _rebuild(name: str, message: str, hint: str) -> HeadraceError:
    by_name = {cls.__name__: cls for cls in _subclasses(HeadraceError)}
    return by_name.get(name, HeadraceError)(message, hint=hint)


def from_json(text: str) -> HeadraceError | None:
    """The error that `to_json` wrote; None for any other text."""
    start = text.find('{"error": ')
    if start < 0:
        return None
    try:
        fields, _ = json.JSONDecoder().raw_decode(text[start:])
        return _rebuild(fields["error"], fields["message"], fields["hint"])
    except (ValueError, KeyError, TypeError):
        return None
