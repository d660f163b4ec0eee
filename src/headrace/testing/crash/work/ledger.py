"""A processor of the crash rounds that uses every kind of state and timers, and its model in plain Python.

Both have the same rules and share no code but the constants: the model keeps dicts and sorted lists.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.testing.crash.input import Row

AFTER_MS = 20_000  # from a row to its timer
OUTPUT = "user string, item long, what string, at long, n long, seen string"

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Ledger(StatefulProcessor):  # type: ignore[misc]
    """Counts rows, lists bids, counts notes; a timer after each row reports and clears some of it."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long, total double")
        self.bids = handle.getListState("bids", "bid long")
        self.notes = handle.getMapState("notes", "note string", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n, total = self.count.get() if self.count.exists() else (0, 0.0)
        for row in sorted(rows, key=lambda row: (row.ts, row.bid)):
            n, total = n + 1, total + (row.amount or 0.0)
            self.bids.appendValue((row.bid,))
            if row.note is not None:
                before = self.notes.getValue((row.note,))
                self.notes.updateValue((row.note,), ((before.n if before else 0) + 1,))
            self.handle.registerTimer((row.ts - _EPOCH) // dt.timedelta(milliseconds=1) + AFTER_MS)
        self.count.update((n, total))
        yield self._report(key, "rows", 0)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        yield self._report(key, "timer", at)
        if at % 2 == 0:
            self.bids.clear()
        if at % 3 == 0:
            self.notes.clear()
        if at % 5 == 0:
            self.count.clear()

    def _report(self, key: Any, what: str, at: int) -> Any:
        n, total = self.count.get() if self.count.exists() else (0, 0.0)
        bids = [bid for (bid,) in self.bids.get()]
        notes = sorted([note, n] for (note,), (n,) in self.notes.iterator())
        seen = json.dumps([total, bids, notes, sorted(self.handle.listTimers())])
        return SparkRow(user=key[0], item=key[1], what=what, at=at, n=n, seen=seen)

    def close(self) -> None:
        pass


@dataclass
class Account:
    """The state of one key."""

    n: int = 0
    total: float = 0.0
    bids: list[int] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    timers: set[int] = field(default_factory=set)

    def take(self, rows: Iterable[Row]) -> None:
        for row in sorted(rows, key=lambda row: (row.ts_us, row.bid)):
            self.n, self.total = self.n + 1, self.total + (row.amount or 0.0)
            self.bids.append(row.bid)
            if row.note is not None:
                self.notes[row.note] = self.notes.get(row.note, 0) + 1
            self.timers.add(row.ts_us // 1000 + AFTER_MS)

    def pass_timer(self, at: int) -> None:
        """What a timer clears, after its report."""
        if at % 2 == 0:
            self.bids = []
        if at % 3 == 0:
            self.notes = {}
        if at % 5 == 0:
            self.n, self.total = 0, 0.0
        self.timers.discard(at)

    def report(self, key: tuple[Any, ...], what: str, at: int) -> tuple[Any, ...]:
        return (*key, what, at, self.n, self.seen)

    @property
    def seen(self) -> str:
        notes = sorted([note, n] for note, n in self.notes.items())
        return json.dumps([self.total, self.bids, notes, sorted(self.timers)])

    @property
    def is_empty(self) -> bool:
        return not (self.n or self.bids or self.notes or self.timers)


class Accounts:
    """All keys; timers and late rows go by the watermark of the rows before, as in Spark."""

    def __init__(self, delay_us: int) -> None:
        self._delay_ms = delay_us // 1000
        self._accounts: dict[tuple[Any, ...], Account] = {}
        self._newest_ms: int | None = None
        self._watermark_ms: int | None = None
        self.late_rows = 0

    def batch(self, rows: list[Row]) -> Counter[tuple[Any, ...]]:
        """The output of one batch."""
        late_ms = self._watermark_ms
        self._watermark_ms = None if self._newest_ms is None else self._newest_ms - self._delay_ms
        for row in rows:
            self._newest_ms = max(self._newest_ms or 0, row.ts_us // 1000)
        by_key: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if late_ms is not None and row.ts_us <= late_ms * 1000:
                self.late_rows += 1
            else:
                by_key.setdefault((row.user, row.item), []).append(row)
        output: Counter[tuple[Any, ...]] = Counter()
        for key, own in by_key.items():
            account = self._accounts.setdefault(key, Account())
            account.take(own)
            output[account.report(key, "rows", 0)] += 1
        output.update(self._fired())
        return output

    def _fired(self) -> Iterator[tuple[Any, ...]]:
        if self._watermark_ms is None:
            return
        for key, account in self._accounts.items():
            for at in sorted(at for at in account.timers if at <= self._watermark_ms):
                yield account.report(key, "timer", at)
                account.pass_timer(at)

    def state(self) -> Counter[tuple[Any, ...]]:
        """Keys with state, and their state."""
        living = {key: one for key, one in self._accounts.items() if not one.is_empty}
        return Counter((*key, one.n, one.seen) for key, one in living.items())


def header_row(keys: tuple[Any, ...], header: list[Any]) -> tuple[Any, ...]:
    """The header of a key in the form of `Accounts.state`."""
    from headrace.spark.processors.convert import unpack

    timers, count, bids, notes = header
    n, total = (0, 0.0) if count is None else count
    listed = [] if bids is None else [bid for (bid,) in bids[1]]
    counted = sorted([unpack(note)[0], of[0]] for note, of in (notes or {}).items())
    return (*keys, n, json.dumps([float(total), listed, counted, sorted(timers or [])]))
