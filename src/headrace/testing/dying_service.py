"""A host that dies, or stands still, at a named moment of a commit (`checkpoint.steps.Moment`).

A host whose service is `headrace.testing.dying_service:open_dying?moment=uploaded&nth=3` kills itself the
third time it comes to that moment. With `pause_s` it pauses there instead, every time from the `nth` on.
With `once`, a file that the dying host leaves, the host that comes after it lives.
A host whose service is `…:open_obeying?folder=…` stops where it is ordered to (`testing.stops`).
Threads: any; the count is guarded.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from headrace.blob.locations import Locations
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.steps import Moment, Probe
from headrace.host.service import PartitionService
from headrace.testing.stops import obeying

Act = Callable[[], None]


def dying_at(moment: Moment, nth: int = 1, once: Path | None = None) -> Probe:
    """Kills this process the `nth` time that it comes to `moment`, unless `once` is there already."""
    return at(moment, nth, lambda: _die(once))


def pausing_at(moment: Moment, pause_s: float, nth: int = 1) -> Probe:
    """Waits at `moment`, from the `nth` time on."""
    return at(moment, nth, lambda: time.sleep(pause_s), again=True)


def at(moment: Moment, nth: int, act: Act, *, again: bool = False) -> Probe:
    count, lock = [0], threading.Lock()

    def probe(now: Moment) -> None:
        if now != moment:
            return
        with lock:
            count[0] += 1
            due = count[0] == nth or (again and count[0] > nth)
        if due:
            act()

    return probe


def _die(once: Path | None) -> None:
    if once is not None:
        try:
            once.touch(exist_ok=False)
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # the signal is on its way, and nothing may be done after it


def open_dying(
    memory_bytes: int, local: Path, *, moment: str, nth: str = "1", pause_s: str = "", once: str = ""
) -> PartitionService:
    """The state behind a host that dies or pauses."""
    when, number = Moment(moment), int(nth)
    if pause_s:
        probe = pausing_at(when, float(pause_s), number)
    else:
        probe = dying_at(when, number, Path(once) if once else None)
    return PartitionService(memory_bytes, Locations(local), Crew(probe=probe))


def open_obeying(memory_bytes: int, local: Path, *, folder: str) -> PartitionService:
    """The state behind a host that takes orders to stop from files in `folder`."""
    return PartitionService(memory_bytes, Locations(local), Crew(probe=obeying(Path(folder))))
