"""Windows: fixed windows, sessions, and windows over rows in their order."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

_LATER = ("until", "count", "step", "marker")  # members of later releases

WindowKind = Literal["none", "fixed", "session", "settled"]


@dataclass(frozen=True)
class Window:
    """Fixed windows `[start, start + width)`, one every `slide`, or sessions; all in microseconds.

    Fixed: `start ≡ offset (mod slide)`. If the slide equals the width, windows tumble.
    Session: lasts from the first row of a key to `width` after its last row; the width is the gap.
    With `until` each row has an end of its own, the width is 0, and the latest end is that of the session.
    Settled, by count: `count` rows of a key in the order of event time, a window every `step` rows.
    Settled, by marker: all rows up to the next marker, or up to one that no row follows within `width`.
    Without a gap the width is 0.
    A closed window accepts late rows for `lateness_us`. `ends` only affects reading ahead.
    """

    width_us: int
    offset_us: int = 0
    slide_us: int = 0  # 0: the width
    session: bool = False
    lateness_us: int = 0
    ends: str | None = None  # sessions: the input with the earliest expected end of the session
    until: str | None = None  # sessions: the input with the end of a session of the row alone
    count: int = 0  # settled: rows of a window
    step: int = 0  # settled: rows from the start of a window to that of the next one
    marker: str | None = None  # settled: the input that is true in the last row of a window

    def to_json(self) -> dict[str, Any]:
        """The members of JSON; those of later releases are left out where they are not used."""
        return {name: value for name, value in asdict(self).items() if name not in _LATER or value}

    @property
    def every_us(self) -> int:
        return self.slide_us or self.width_us

    @property
    def slice_us(self) -> int:
        """The width of a slice: every window consists of whole slices."""
        return math.gcd(self.width_us, self.every_us)


def kind_of(window: Window | None) -> WindowKind:
    if window is None:
        return "none"
    if window.count or window.marker is not None:
        return "settled"
    return "session" if window.session else "fixed"
