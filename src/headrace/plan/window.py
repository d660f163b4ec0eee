"""Windows: fixed windows and sessions, in microseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

WindowKind = Literal["none", "fixed", "session"]


@dataclass(frozen=True)
class Window:
    """Fixed windows `[start, start + width)`, one every `slide`, or sessions; all in microseconds.

    Fixed: `start ≡ offset (mod slide)`. If the slide equals the width, windows tumble.
    Session: lasts from the first row of a key to `width` after its last row; the width is the gap.
    A closed window accepts late rows for `lateness_us`. `ends` only affects reading ahead.
    """

    width_us: int
    offset_us: int = 0
    slide_us: int = 0  # 0: the width
    session: bool = False
    lateness_us: int = 0
    ends: str | None = None  # sessions: the input with the earliest expected end of the session

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
    return "session" if window.session else "fixed"
