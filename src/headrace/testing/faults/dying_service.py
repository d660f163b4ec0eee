"""A host that kills itself, or pauses, at a named moment of a commit (`checkpoint.steps.Moment`).

A host with the service `headrace.testing.faults.dying_service:open_dying?moment=uploaded&nth=3` kills
itself the third time that it reaches that moment. With `pause_s` it pauses instead, every time from the
`nth` on. With `once` the killed host leaves that file, and the next host survives. A host with the service
`…:open_obeying?folder=…` stops on order (`testing.faults.stops`).
Threads: any; a lock guards the count.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from headrace.blob.locations import Locations
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.steps import Moment, Probe
from headrace.clock import SYSTEM_CLOCK
from headrace.host.state.service import PartitionService
from headrace.testing.faults.stops import obeying

Act = Callable[[], None]


def dying_at(moment: Moment, nth: int = 1, once: Path | None = None) -> Probe:
    """Kills this process the `nth` time that it reaches `moment`, unless the file `once` exists."""
    return at(moment, nth, lambda: _die(once))


def pausing_at(moment: Moment, pause_s: float, nth: int = 1) -> Probe:
    """Waits at `moment`, from the `nth` time on."""
    return at(moment, nth, lambda: SYSTEM_CLOCK.sleep_ms(pause_s * 1000), again=True)


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
    SYSTEM_CLOCK.sleep_ms(60_000)  # the signal has been sent, and nothing may be done after it


def open_dying(
    memory_bytes: int, local: Path, *, moment: str, nth: str = "1", pause_s: str = "", once: str = ""
) -> PartitionService:
    """The service of a host that kills itself or pauses."""
    when, number = Moment(moment), int(nth)
    if pause_s:
        probe = pausing_at(when, float(pause_s), number)
    else:
        probe = dying_at(when, number, Path(once) if once else None)
    return PartitionService(memory_bytes, Locations(local), Crew(probe=probe))


def open_obeying(memory_bytes: int, local: Path, *, folder: str) -> PartitionService:
    """The service of a host that obeys stop orders in `folder`."""
    return PartitionService(memory_bytes, Locations(local), Crew(probe=obeying(Path(folder))))
