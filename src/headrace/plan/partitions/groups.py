"""Hash groups: which of the 1,024 ranges of hashes a partition owns. Pure.

A partition of *n* owns the groups whose number, scaled to *n*, is its own. The top bits of a hash name its
group, so the groups of a partition are one range of hashes.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP_BITS = 10
GROUPS = 1 << GROUP_BITS
_LOW_BITS = 64 - GROUP_BITS


@dataclass(frozen=True, order=True)
class Groups:
    """The hash groups `[low, high)`."""

    low: int = 0
    high: int = GROUPS

    @property
    def hashes(self) -> tuple[int, int]:
        """The hashes `[low, high)` of the groups; `high` may be 2**64."""
        return self.low << _LOW_BITS, self.high << _LOW_BITS

    @property
    def are_all(self) -> bool:
        return self == ALL_GROUPS

    @property
    def count(self) -> int:
        return max(0, self.high - self.low)

    def shared_with(self, other: Groups) -> Groups:
        """The groups of both; empty ranges have a count of 0."""
        return Groups(max(self.low, other.low), min(self.high, other.high))


ALL_GROUPS = Groups()


def groups_of(partition: int, partitions: int) -> Groups:
    """The groups of one of `partitions` partitions."""
    return Groups(-(-partition * GROUPS // partitions), -(-(partition + 1) * GROUPS // partitions))


def partition_of(hashed: int, partitions: int) -> int:
    """The partition that owns a hash, signed or unsigned."""
    return ((hashed >> _LOW_BITS) & (GROUPS - 1)) * partitions >> GROUP_BITS
