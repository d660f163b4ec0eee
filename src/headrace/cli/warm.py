"""`headrace warm`: compile the kernels ahead of the first query."""

from __future__ import annotations

from collections.abc import Callable

from headrace.clock import SystemClock

Say = Callable[[str], None]


def warm(say: Say) -> int:
    """Compile or load every kernel; the exit code."""
    say("compiling kernels; after an installation this takes half a minute, else a second or two")
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    from headrace.kernels.warm import warm as load

    names = load()
    say(f"{len(names)} modules of kernels are ready ({(clock.monotonic_ms() - began_ms) / 1000:.1f} s)")
    return 0
