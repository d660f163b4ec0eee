"""How the rows of sessions that end are read from disk, and which sessions are read ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# rate: the ratio, or more if more sessions end per batch, and only where the disk must be read. share: the
# ratio, always. alone: each session is read by itself, and nothing ahead.
ReadBy = Literal["rate", "share", "alone"]

DEFAULT_RATIO = 0.02


@dataclass(frozen=True)
class Reading:
    """The setting `read.ratio`; `ratio` is the part of the live sessions that is read ahead."""

    by: ReadBy = "rate"
    ratio: float = DEFAULT_RATIO


AUTO = Reading()


@dataclass(frozen=True)
class ReadAhead:
    """Sessions counted by how their rows were read."""

    hits: int = 0  # ended, with all rows read ahead
    misses: int = 0  # ended, and read from disk then
    ahead: int = 0  # read ahead
    in_vain: int = 0  # read ahead and not used: they grew, or left memory

    def since(self, before: ReadAhead) -> ReadAhead:
        """The counts less those of an earlier moment."""
        return ReadAhead(
            self.hits - before.hits,
            self.misses - before.misses,
            self.ahead - before.ahead,
            self.in_vain - before.in_vain,
        )
