"""The memory store: the state of a layout held in memory, never evicted, durable as a log of changes.

It wraps another store whose memory is not limited. Changes of an epoch are written as segments as usual;
nothing is spilled, and nothing is read again while the store lives. After a restart, rows are read back
from the segments on first use. State that outgrows the partition's share is an error, not a slow query.
Threads: as the inner store.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import SettingError
from headrace.store.base.contract import Store
from headrace.store.base.delegating import DelegatingStore
from headrace.store.base.share import Share


class MemoryStore(DelegatingStore):
    """A store that must fit its share of the host's memory."""

    def __init__(self, inner: Store, share: Share) -> None:
        super().__init__(inner)
        self._share = share

    def apply(self, rows: pa.RecordBatch) -> None:
        self._inner.apply(rows)
        used, share = self._inner.memory_bytes, self._share.limit_bytes
        if used > share:
            raise SettingError(
                f"the state of a partition of operator {self.spec.name!r} takes {used:,} bytes in memory, "
                f"and its share of the host's limit is {share:,}: the memory store never spills",
                hint="raise spark.headrace.memory, or leave the memory store: "
                "set spark.headrace.store to auto, or change .store(…) on the operator",
            )
