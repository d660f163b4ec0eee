"""Orders to stop: a host stands still at a named moment of a commit until whoever gave the order lifts it.

    <folder>/stop            the order: token, moment, and which time of it
    <folder>/stopped-<token> left by the host that stands still: its process id

Whoever gave the order kills whom it wants in between; hosts that live then go on. An order counts from when
it is given, in each host by itself, and stops one thread once.
Threads: any; the count is guarded. Everything else is in the files.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.steps import Moment, Probe

_ORDER, _STOPPED = "stop", "stopped-"
_LOOK_EVERY_S = 0.005


@dataclass(frozen=True)
class Stop:
    """Stand still the `nth` time that a host comes to `moment`."""

    token: str
    moment: Moment
    nth: int = 1


def give(folder: Path, stop: Stop) -> None:
    """Order it; an order before it is lifted."""
    _write(folder / _ORDER, f"{stop.token} {stop.moment} {stop.nth}")


def lift(folder: Path) -> None:
    """Whoever stands still goes on."""
    (folder / _ORDER).unlink(missing_ok=True)


def stopped(folder: Path, stop: Stop) -> int | None:
    """The process that stands still by this order."""
    try:
        return int((folder / f"{_STOPPED}{stop.token}").read_text())
    except FileNotFoundError:
        return None


def forget(folder: Path) -> None:
    """Remove all orders and what came of them."""
    lift(folder)
    for path in folder.glob(f"{_STOPPED}*"):
        path.unlink(missing_ok=True)


def obeying(folder: Path) -> Probe:
    """What a host calls at its moments."""
    counts, lock = dict[str, int](), threading.Lock()

    def probe(now: Moment) -> None:
        order = _read(folder)
        if order is None or order.moment is not now:
            return
        with lock:
            counts[order.token] = count = counts.get(order.token, 0) + 1
        if count == order.nth:
            _write(folder / f"{_STOPPED}{order.token}", str(os.getpid()))
            while _read(folder) == order:
                time.sleep(_LOOK_EVERY_S)

    return probe


def _read(folder: Path) -> Stop | None:
    try:
        token, moment, nth = (folder / _ORDER).read_text().split()
    except FileNotFoundError:
        return None
    return Stop(token, Moment(moment), int(nth))


def _write(path: Path, text: str) -> None:
    """Readers see the whole text or none of it."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    hidden.write_text(text)
    hidden.rename(path)
