"""The memory store: the state of a layout held in memory, never evicted, durable as a log of changes.

It is another store (`inner`) that believes memory has no end: what an epoch changed is written as segments
as ever, nothing is spilled or read again while the store lives. After a restart rows come back from the
segments as they are asked for. State that outgrows the partition's share is an error, not a slow query.
Threads: as the inner store.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headrace.errors import SettingError
from headrace.spec import OperatorSpec
from headrace.store.budget import MemoryBudget
from headrace.store.contract import Compaction, Seal, Store, Write
from headrace.store.segment import Segment

ENDLESS_BYTES = 1 << 62


class EndlessBudget(MemoryBudget):
    """A budget that never asks anybody to make room."""

    def __init__(self) -> None:
        super().__init__(ENDLESS_BYTES)

    @property
    def share_bytes(self) -> int:
        return ENDLESS_BYTES


class MemoryStore:
    """A store that must fit its share of the host's memory."""

    def __init__(self, inner: Store, budget: MemoryBudget) -> None:
        self._inner, self._budget = inner, budget

    @property
    def spec(self) -> OperatorSpec:
        return self._inner.spec

    @spec.setter
    def spec(self, spec: OperatorSpec) -> None:
        self._inner.spec = spec

    @property
    def seal(self) -> Seal:
        return self._inner.seal

    @seal.setter
    def seal(self, seal: Seal) -> None:
        self._inner.seal = seal

    @property
    def segments(self) -> list[Segment]:
        return self._inner.segments

    @segments.setter
    def segments(self, segments: list[Segment]) -> None:
        self._inner.segments = segments

    @property
    def watermark_us(self) -> int | None:
        return self._inner.watermark_us

    @watermark_us.setter
    def watermark_us(self, watermark_us: int | None) -> None:
        self._inner.watermark_us = watermark_us

    @property
    def late_rows(self) -> int:
        return self._inner.late_rows

    @late_rows.setter
    def late_rows(self, late_rows: int) -> None:
        self._inner.late_rows = late_rows

    @property
    def memory_bytes(self) -> int:
        return self._inner.memory_bytes

    def apply(self, rows: pa.RecordBatch) -> None:
        self._inner.apply(rows)
        held, share = self._inner.memory_bytes, self._budget.share_bytes
        if held > share:
            raise SettingError(
                f"the state of a partition of operator {self.spec.name!r} takes {held:,} bytes in memory, "
                f"and its share of the host's limit is {share:,}: the memory store never spills",
                hint="raise spark.headrace.memory, or leave the memory store: "
                "set spark.headrace.store to auto, or change .store(…) on the operator",
            )

    def gather(self, watermark_us: int | None) -> Write:
        return self._inner.gather(watermark_us)

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        return self._inner.results(watermark_us)

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self._inner.settle(segments, watermark_us)

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        return self._inner.is_live(segment, watermark_us)

    def keys_after(self, watermark_us: int | None) -> int:
        return self._inner.keys_after(watermark_us)

    def compaction(self, many: int | None = None) -> Compaction | None:
        return self._inner.compaction(many)
