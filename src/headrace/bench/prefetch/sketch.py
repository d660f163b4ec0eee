"""The sketch of the stage before the shuffle (`jvm/scala/HotFilter.scala`), for replays without a JVM."""

from __future__ import annotations

import numpy as np

from headrace.row.arrays import I64, Flags

_WIDTH, _DEPTH, _LAST, _AGED_EVERY = 8192, 4, 1024, 65_536


class Sketch:
    """Which hashes send hints; the counts outlive a batch."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._rows = [bytearray(_WIDTH) for _ in range(_DEPTH)]
        self._last = [0] * _LAST
        self._seen = 0

    def passing(self, hashes: I64) -> I64:
        """The hashes that are not frequent, and were not just seen."""
        flags: Flags = np.fromiter((self._passes(one) for one in hashes.tolist()), np.bool_, len(hashes))
        return hashes[flags]

    def _passes(self, hash_: int) -> bool:
        self._seen += 1
        if self._seen % _AGED_EVERY == 0:
            self._rows = [bytearray(value >> 1 for value in row) for row in self._rows]
            self._last = [0] * _LAST
        unsigned, least = hash_ & (1 << 64) - 1, 255
        for depth, row in enumerate(self._rows):
            at = (unsigned >> (13 * depth)) % _WIDTH
            row[at] = min(255, row[at] + 1)
            least = min(least, row[at])
        place = unsigned % _LAST
        repeated, self._last[place] = self._last[place] == hash_, hash_
        return least <= self._threshold and not repeated
