"""The expected results of the crash rounds' queries: plain lists of plain rows, batch by batch.

The model shares nothing with the engine: no Arrow, no hashes, no kernels. A window closes in the batch
whose rows pass it. The final state is what the query would emit if all its windows closed then. For a
function of the user it is the rows that the function has not seen yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from headrace.testing.crash.input import Row
from headrace.testing.crash.queries import (
    CROSSING_US,
    DELAY_US,
    GAP_US,
    LATENESS_US,
    NARROW_US,
    OFFSET_US,
    SLIDE_US,
    WIDE_US,
    Kind,
)
from headrace.testing.crash.work import auctions
from headrace.testing.crash.work.groups import Group, Groups, Key, Place, fixed, sessions
from headrace.testing.crash.work.ledger import Accounts

Values = tuple[Any, ...]
Output = Counter[Values]
Answer = Callable[[list[Row]], Iterable[Values]]


@dataclass
class Expected:
    """Output rows per batch, and per operator its final state and late rows."""

    emitted: list[Output] = field(default_factory=list)
    state: dict[str, Output] = field(default_factory=dict)
    late_rows: dict[str, int] = field(default_factory=dict)


def totals(rows: list[Row]) -> list[Values]:
    """Count, sum of amounts, largest bid, least note; None where there is no value."""
    amounts = [row.amount for row in rows if row.amount is not None]
    notes = [row.note for row in rows if row.note is not None]
    top = max(row.bid for row in rows)
    least = min(notes, key=str.encode) if notes else None
    return [(len(rows), sum(amounts) if amounts else None, top, least)]


def ranks(rows: list[Row]) -> list[Values]:
    """Count, median of amounts, and all bids in the order of time."""
    amounts = [row.amount for row in rows if row.amount is not None]
    bids = tuple(row.bid for row in sorted(rows, key=lambda row: (row.ts_us, row.bid)))
    return [(len(rows), median(amounts) if amounts else None, bids)]


def pairs(rows: list[Row]) -> list[Values]:
    """Bids from zero on paired with bids below it, both with their values; without a partner paired with
    nulls.

    A null key equals no other key.
    """
    highs = [(row.bid, row.note) for row in rows if row.bid >= 0]
    lows = [(row.bid, row.amount) for row in rows if row.bid < 0]
    if highs and lows and rows[0].user is not None:
        return [(*high, *low) for high in highs for low in lows]
    return [(*high, None, None) for high in highs] + [(None, None, *low) for low in lows]


def summaries(rows: list[Row]) -> list[Values]:
    """The results of the user's function."""
    amounts = [row.amount for row in rows if row.amount is not None]
    notes = sorted(row.note for row in rows if row.note is not None)
    return [(len(rows), max(amounts) - min(amounts) if amounts else None, "|".join(notes))]


def unseen(rows: list[Row]) -> list[Values]:
    """The rows themselves."""
    return [(row.ts_us, row.amount, row.bid, row.note) for row in rows]


@dataclass(frozen=True)
class Model:
    """One query: the windows of its rows, the results of a closed window, and the state of an open one."""

    place: Place
    answer: Answer
    holds: Answer
    ends: bool = False  # the output has both bounds of the window
    sides: bool = False  # two streams with a watermark each
    delay_us: int = DELAY_US
    lateness_us: int = 0


_NARROW = fixed(NARROW_US, NARROW_US)
_WINDOWED = Model(_NARROW, totals, totals)
_RANKED = Model(_NARROW, ranks, ranks)
_SHIFTED = fixed(NARROW_US, SLIDE_US, OFFSET_US)
_MODELS: dict[Kind, Model] = {
    "window": _WINDOWED,
    "sliding": Model(fixed(NARROW_US, SLIDE_US), totals, totals),
    "session": Model(sessions(GAP_US), totals, totals, ends=True),
    "median": _RANKED,
    "apply": Model(_NARROW, summaries, unseen),
    "join": Model(_NARROW, pairs, pairs, sides=True),
    "range": _RANKED,
    "session_median": Model(sessions(GAP_US), ranks, ranks, ends=True),
    "rocksdb": _WINDOWED,
    "memory": _WINDOWED,
    "late": Model(_SHIFTED, totals, totals, delay_us=0, lateness_us=LATENESS_US),
    "session_join": Model(sessions(GAP_US), pairs, pairs, ends=True, sides=True),
    "moving": Model(fixed(NARROW_US, CROSSING_US), summaries, unseen),
}


def expected(kind: Kind, batches: Iterable[list[Row]]) -> Expected:
    """The output and the state of the query `kind`."""
    if kind in auctions.QUERIES:
        return Expected(auctions.expected_output(kind, batches))
    if kind == "running":
        return _running(batches)
    if kind == "processor":
        return _processor(batches)
    return _chained(batches) if kind == "chained" else _windowed(_MODELS[kind], batches)


def _running(batches: Iterable[list[Row]]) -> Expected:
    groups: dict[Key, list[Row]] = {}
    result = Expected(late_rows={"running": 0})
    for rows in batches:
        for row in rows:
            groups.setdefault((row.user, row.item), []).append(row)
        changed = {(row.user, row.item) for row in rows}
        result.emitted.append(Counter((*key, *totals(groups[key])[0]) for key in changed))
    result.state["running"] = Counter((*key, *totals(rows)[0]) for key, rows in groups.items())
    return result


def _processor(batches: Iterable[list[Row]]) -> Expected:
    accounts = Accounts(DELAY_US)
    emitted = [accounts.batch(rows) for rows in batches]
    return Expected(emitted, {"narrow": accounts.state()}, {"narrow": 0})  # workers drop late rows


def _windowed(model: Model, batches: Iterable[list[Row]]) -> Expected:
    narrow = Groups(model.place, model.lateness_us)
    clock = Watermark(2 if model.sides else 1, model.delay_us)
    result = Expected(late_rows={"narrow": 0})
    for rows in batches:
        result.late_rows["narrow"] += _late_rows(narrow, rows, clock)
        result.emitted.append(_output(narrow.close(clock.at_us), model.answer, model.ends))
    result.state["narrow"] = _output(narrow.unseen, model.holds, model.ends)
    return result


def _chained(batches: Iterable[list[Row]]) -> Expected:
    narrow, wide, clock = Groups(_NARROW), Groups(fixed(WIDE_US, WIDE_US)), Watermark(1)
    result = Expected(late_rows={"narrow": 0, "wide": 0})
    for rows in batches:
        before = clock.at_us
        result.late_rows["narrow"] += _late_rows(narrow, rows, clock)
        for ((user, _), (_, end)), closed in narrow.close(clock.at_us).items():
            result.late_rows["wide"] += not wide.take((user,), end - 1, closed, before)
        result.emitted.append(_output(wide.close(clock.at_us), totals))
    result.state = {"narrow": _output(narrow.open_rows, totals), "wide": _output(wide.open_rows, totals)}
    return result


class Watermark:
    """The watermark: the least of the streams' largest times, minus the delay."""

    def __init__(self, streams: int, delay_us: int = DELAY_US) -> None:
        self._frontiers_ms: list[int | None] = [None] * streams
        self._delay_us = delay_us

    def see(self, rows: Iterable[Row]) -> None:
        for row in rows:
            stream = int(row.bid < 0) if len(self._frontiers_ms) > 1 else 0
            seen = self._frontiers_ms[stream]
            self._frontiers_ms[stream] = row.ts_us // 1000 if seen is None else max(seen, row.ts_us // 1000)

    @property
    def at_us(self) -> int | None:
        times_ms = [at for at in self._frontiers_ms if at is not None]
        return min(times_ms) * 1000 - self._delay_us if len(times_ms) == len(self._frontiers_ms) else None


def _late_rows(groups: Groups, rows: list[Row], clock: Watermark) -> int:
    """Puts a batch into its windows and moves the watermark; returns the number of late rows."""
    before = clock.at_us
    clock.see(rows)
    return sum(not groups.take((row.user, row.item), row.ts_us, [row], before) for row in rows)


def _output(groups: dict[Group, list[Row]], answer: Answer, ends: bool = False) -> Output:
    return Counter(
        (*key, *(bounds if ends else bounds[:1]), *values)
        for (key, bounds), rows in groups.items()
        for values in answer(rows)
    )
