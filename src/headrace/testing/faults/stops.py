"""Stop orders: a host stops at a named moment of a commit until the order is lifted.

    <folder>/stop            the order: token, moment, and which time of it
    <folder>/stopped-<token> left by the stopped host: its process id

The test kills processes while a host is stopped; the surviving hosts then go on. An order counts from the
time it is given, separately in each host, and stops one thread once.
Threads: any; a lock guards the count. Everything else is in the files.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from headrace.checkpoint.steps import Moment, Probe
from headrace.clock import SYSTEM_CLOCK

_ORDER, _STOPPED = "stop", "stopped-"
_LOOK_EVERY_MS = 5.0


@dataclass(frozen=True)
class Stop:
    """An order to stop the `nth` time that a host reaches `moment`."""

    token: str
    moment: Moment
    nth: int = 1


def give(folder: Path, stop: Stop) -> None:
    """Gives the order; lifts an earlier one."""
    _write(folder / _ORDER, f"{stop.token} {stop.moment} {stop.nth}")


def lift(folder: Path) -> None:
    """Lifts the order: the stopped host goes on."""
    (folder / _ORDER).unlink(missing_ok=True)


def stopped(folder: Path, stop: Stop) -> int | None:
    """The process that has stopped by this order."""
    try:
        return int((folder / f"{_STOPPED}{stop.token}").read_text())
    except FileNotFoundError:
        return None


def clear(folder: Path) -> None:
    """Removes all orders and their reports."""
    lift(folder)
    for path in folder.glob(f"{_STOPPED}*"):
        path.unlink(missing_ok=True)


def obeying(folder: Path) -> Probe:
    """The function that a host calls at its moments."""
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
                SYSTEM_CLOCK.sleep_ms(_LOOK_EVERY_MS)

    return probe


def _read(folder: Path) -> Stop | None:
    try:
        token, moment, nth = (folder / _ORDER).read_text().split()
    except FileNotFoundError:
        return None
    return Stop(token, Moment(moment), int(nth))


def _write(path: Path, text: str) -> None:
    """Writes atomically: readers see the whole text or none of it."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    hidden.write_text(text)
    hidden.rename(path)
