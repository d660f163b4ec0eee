"""The prefetching controller: which lookahead gives hints in the next batch. Pure functions over one batch.

It begins without hints. Rows that wait for state activate the latest candidate. The latest candidate whose
slack covers the time of a read is taken. The time from hint to use that 99 of 100 hashes have at least must
exceed the time of reading that 99 of 100 do not exceed, and a margin. Of the last three batches with reads
the median counts, so that one slow batch changes nothing. A candidate whose reads are not used
is discarded with all candidates before it. Where batches look nothing up any more, hints end.

Senders leave out frequent hashes, because their state should be in memory. The count that makes a hash
frequent doubles where rows still wait for keys. It is halved where no row waits and most hints are for keys
in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from types import MappingProxyType

from headrace.plan.lookahead import EARLY, Candidates, Prefetch
from headrace.wire.state_reads import StateReads

WAIT_MIN_MS = 1.0  # a batch that waits less for state needs no hints
MARGIN_MS = 5.0
HOT, HOT_MIN, HOT_MAX = (
    64,
    8,
    255,
)  # a hash with a larger count gets no hints; counts end at 255
MISSES_MAX = 0.02  # of the keys looked up
FILTERED_MAX = 0.75  # of the hints
QUIET_BATCHES = 8  # without a look-up: all state in use is in memory
FETCHES_SEEN = 3  # batches
SETTLING_BATCHES = 2  # after a switch: reads of the candidate before are still found in vain


@dataclass(frozen=True)
class Choice:
    """The lookahead in use, and what is known of all of them."""

    active: str = ""  # empty: none
    reason: str = "no row has waited for state"
    discarded: frozenset[str] = frozenset()
    slacks_ms: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    fetches_ms: tuple[float, ...] = ()  # the time of a read in the last batches that had any
    quiet: int = 0  # batches without a look-up
    since: int = 0  # batches since the last switch
    hot: int = HOT


def begin(candidates: Candidates, mode: Prefetch) -> Choice:
    """The choice before the first batch."""
    if mode == "off":
        return Choice(reason="spark.headrace.prefetch=off")
    if not candidates.names:
        return Choice(reason=candidates.reason)
    if mode == "auto":
        return Choice()
    return Choice(_by_setting(candidates.names, mode), f"spark.headrace.prefetch={mode}")


def _by_setting(names: Sequence[str], mode: Prefetch) -> str:
    """The candidate of that name, else the earliest one that costs no job and no copy of the input."""
    return mode if mode in names else next(name for name in names if name not in EARLY)


def after(
    before: Choice, reads: StateReads, candidates: Candidates, mode: Prefetch, waste: float = 0.0
) -> Choice:
    """The choice after one more batch; `waste` is the tolerated part of reads that are not used."""
    if mode != "auto" or not candidates.names:
        return before
    if before.active not in candidates.names:
        before = replace(before, active="", since=0)
    if not before.active:
        return _activated(before, reads, candidates.names)
    seen = _measured(before, reads)
    if seen.quiet >= QUIET_BATCHES:
        return replace(seen, active="", quiet=0, since=0, reason="all state in use is in memory")
    if _is_wasteful(seen, reads, waste):
        return _discarded(seen, reads, candidates.names)
    return _switched(seen, _latest_sufficient(seen, candidates.names))


def _activated(before: Choice, reads: StateReads, names: Sequence[str]) -> Choice:
    left = [name for name in names if name not in before.discarded]
    if not left or not reads.misses or reads.wait_ms < WAIT_MIN_MS:
        return before
    reason = f"rows waited {reads.wait_ms:.0f} ms for {reads.misses} keys"
    return replace(before, active=left[-1], since=0, quiet=0, reason=reason)


def _measured(before: Choice, reads: StateReads) -> Choice:
    slacks = dict(before.slacks_ms)
    if reads.slacks:
        slacks[before.active] = reads.slack_ms
    quiet = 0 if reads.looked_up else before.quiet + 1
    fetches_ms = (*before.fetches_ms, reads.slowest_fetch_ms) if reads.fetches else before.fetches_ms
    return replace(
        before,
        slacks_ms=slacks,
        fetches_ms=fetches_ms[-FETCHES_SEEN:],
        quiet=quiet,
        since=before.since + 1,
        hot=_hot(before.hot, reads),
    )


def _hot(hot: int, reads: StateReads) -> int:
    """The count from which a hash gets no hints, after one more batch."""
    if reads.misses > MISSES_MAX * reads.looked_up and not reads.dropped:
        return min(HOT_MAX, 2 * hot)
    if reads.hints and not reads.misses and reads.filtered > FILTERED_MAX * reads.hints:
        return max(HOT_MIN, hot // 2)
    return hot


def _is_wasteful(seen: Choice, reads: StateReads, waste: float) -> bool:
    spent = reads.fetched + reads.in_vain
    return seen.since > SETTLING_BATCHES and bool(spent) and reads.in_vain > waste * spent


def _discarded(seen: Choice, reads: StateReads, names: Sequence[str]) -> Choice:
    """Without the active candidate and all before it."""
    gone = seen.discarded | set(names[: names.index(seen.active) + 1])
    left = [name for name in names if name not in gone]
    reason = f"{seen.active} is discarded: {reads.in_vain} keys were read in vain"
    fewer = replace(seen, discarded=gone, since=0, reason=reason)
    return replace(fewer, active=_latest_sufficient(fewer, names) if left else "")


def _latest_sufficient(seen: Choice, names: Sequence[str]) -> str:
    """The latest candidate that is not known to be too late; if all are, the one with most slack."""
    needed_ms = median(seen.fetches_ms or (0.0,)) + MARGIN_MS
    left = [name for name in names if name not in seen.discarded]
    for name in reversed(left):
        if seen.slacks_ms.get(name, needed_ms) >= needed_ms:
            return name
    return max(left, key=lambda name: seen.slacks_ms[name])


def _switched(seen: Choice, name: str) -> Choice:
    if name == seen.active:
        return seen
    return replace(seen, active=name, since=0, reason=f"{name} gives hints in time")
