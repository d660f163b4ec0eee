"""The paper's figure 10, in the host: which candidate gives hints while keys and read times change.

The partition, its reads and the controller are real; hints are given at each candidate's own lead. At
batch 40 the keys that the scout sees are others than those of the rows. At batch 80 reads become fast.
`flood` gives a hundred useless hints per row, from every candidate.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.bench.prefetch.cases import UPDATES, hashes_of
from headrace.bench.prefetch.replay import LOAD_ROWS, Player
from headrace.clock import SYSTEM_CLOCK
from headrace.plan.lookahead import DOOR, INPUT, SCOUT, STAGE, Candidates, Prefetch
from headrace.prefetch.controller import Choice, after, begin
from headrace.row.arrays import I64
from headrace.store.segments.file import SegmentFile
from headrace.wire.state_reads import StateReads

CANDIDATES = Candidates((SCOUT, INPUT, STAGE, DOOR))
LEADS_MS = {SCOUT: 160.0, INPUT: 90.0, STAGE: 40.0, DOOR: 0.0}
SLOW_MS, FAST_MS = 100.0, 1.0
CHANGED, FASTER, BATCHES = 40, 80, 120
SETTLED = 3  # batches
KEYS, ROWS, SHARE = 60_000, 600, 1 << 20
SLOW_BYTES = 1 << 19  # of a segment that is on the slow disk; newer ones are small
USED = KEYS // 2  # keys of rows; the others get useless hints
USELESS = 100  # hints per row


@dataclass(frozen=True)
class Step:
    """One batch: who gave hints, and what rows waited."""

    active: str
    reads: StateReads
    took_ms: float
    memory_bytes: int
    reason: str = ""


@contextmanager
def slowed() -> Iterator[Callable[[float], None]]:
    """Reads of segments take as long as the function that is yielded sets, and their own time."""
    lasts, names = [0.0], ("answer", "rows_of")
    before = {name: getattr(SegmentFile, name) for name in names}

    def slow(read: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_read(segment: SegmentFile, *arguments: Any) -> Any:
            if segment.size >= SLOW_BYTES:
                SYSTEM_CLOCK.sleep_ms(lasts[0])
            return read(segment, *arguments)

        return wait_and_read

    for name in names:
        setattr(SegmentFile, name, slow(before[name]))
    try:
        yield lambda ms: lasts.__setitem__(0, ms)
    finally:
        for name in names:
            setattr(SegmentFile, name, before[name])


def adaptive(batches: int = BATCHES) -> list[Step]:
    """The batches of figure 10."""
    with tempfile.TemporaryDirectory(prefix="headrace-adaptive-") as folder, slowed() as set_ms:
        player = _loaded(Path(folder))
        try:
            return list(_steps(player, batches, set_ms))
        finally:
            player.close()


def settled_within(steps: list[Step], change: int, end: int) -> int:
    """Batches from a change until the candidate in use stays the same to the end."""
    last = steps[end - 1].active
    return next(n for n in range(end - change) if all(s.active == last for s in steps[change + n : end]))


def _loaded(folder: Path) -> Player:
    player = Player(folder, UPDATES, SHARE, "timestamp", DOOR)
    for start in range(0, KEYS, LOAD_ROWS):
        player.load(np.arange(start, min(start + LOAD_ROWS, KEYS)))
    return player


def _keys(random: np.random.Generator) -> I64:
    return random.integers(0, USED, ROWS)


def _steps(player: Player, batches: int, set_ms: Callable[[float], None]) -> Iterator[Step]:
    random, choice = np.random.default_rng(10), begin(CANDIDATES, "auto")
    for batch in range(batches):
        set_ms(SLOW_MS if batch < FASTER else FAST_MS)
        keys, others = _keys(random), _keys(random)
        step = _step(player, choice, keys, others if choice.active == SCOUT and batch >= CHANGED else keys)
        yield replace(step, reason=choice.reason)
        choice = after(choice, step.reads, CANDIDATES, "auto")


def _step(player: Player, choice: Choice, keys: I64, hinted: I64) -> Step:
    begun = SYSTEM_CLOCK.monotonic_ms()
    if choice.active not in ("", DOOR):
        player.expect(hashes_of(hinted))
    SYSTEM_CLOCK.sleep_ms(LEADS_MS.get(choice.active, 0.0))
    reads, _ = player.batch(keys, lookahead=choice.active)
    return Step(choice.active, reads, SYSTEM_CLOCK.monotonic_ms() - begun, player.memory_bytes)


@dataclass(frozen=True)
class Flood:
    """Batches with useless hints beside batches without hints."""

    ratio: float  # rows per second, with over without
    largest_bytes: int  # of the partition
    share_bytes: int
    ended_after: int  # batches until the controller ended the hints


def flood(batches: int = 200) -> Flood:
    """A hundred hints per row, for keys that no row has."""
    plain, flooded = _sides(batches)
    spent = [sum(step.took_ms for step in steps) for steps in (plain, flooded)]
    last = max((at for at, step in enumerate(flooded) if step.active), default=-1)
    largest = max(step.memory_bytes for step in flooded)
    return Flood(spent[0] / spent[1], largest, SHARE, last + 1)


def _sides(batches: int) -> list[list[Step]]:
    """The batches without and with hints; both take turns, so that a busy machine hits both."""
    modes: tuple[Prefetch, ...] = ("off", "auto")
    with tempfile.TemporaryDirectory(prefix="headrace-flood-") as folder:
        players = [_loaded(Path(folder) / mode) for mode in modes]
        choices = [begin(CANDIDATES, mode) for mode in modes]
        steps: list[list[Step]] = [[], []]
        random = np.random.default_rng(11)
        for _ in range(batches):
            keys = _keys(random)
            for at, mode in enumerate(modes):
                steps[at].append(_flooded(players[at], choices[at], keys, random))
                choices[at] = after(choices[at], steps[at][-1].reads, CANDIDATES, mode)
        for player in players:
            player.close()
    return steps


def _flooded(player: Player, choice: Choice, keys: I64, random: np.random.Generator) -> Step:
    begun = SYSTEM_CLOCK.monotonic_ms()
    if choice.active:
        for _ in range(USELESS):
            player.expect(hashes_of(random.integers(USED, KEYS, ROWS)))
    reads, _ = player.batch(keys, lookahead=choice.active)
    return Step(choice.active, reads, SYSTEM_CLOCK.monotonic_ms() - begun, player.memory_bytes)
